// Defaults of decoders, and checks of combinations.
#include "driver/synthetic/decoder_spec.h"

#include "support/diagnostic.h"

#include <algorithm>

namespace kvopt::driver {
using namespace ir;

namespace {

constexpr int64_t mostLayers = 4096;
constexpr int64_t mostHeads = 4096;
constexpr int64_t mostColumns = int64_t{1} << 20;
constexpr int64_t mostRows = int64_t{1} << 24;

llvm::Error checkRange(const char* what, int64_t value, int64_t most) {
  if (value >= 1 && value <= most)
    return llvm::Error::success();
  return usageError("{} is {}, it must be from 1 to {}", what, value, most);
}

llvm::Error checkExtents(const DecoderSpec& spec) {
  struct Range {
    const char* what;
    int64_t value;
    int64_t most;
  };
  const Range ranges[] = {{"the number of layers", spec.layers, mostLayers},
                          {"the hidden width", spec.hidden, mostColumns},
                          {"the number of heads", spec.heads, mostHeads},
                          {"the number of key/value heads", spec.kvHeads, mostHeads},
                          {"the head width", spec.headWidth, mostColumns},
                          {"the intermediate width", spec.intermediate, mostColumns},
                          {"the vocabulary", spec.vocabulary, mostRows},
                          {"the number of positions", spec.maxPositions, mostRows},
                          {"the rotated width", spec.ropeWidth, mostColumns},
                          {"the value width", spec.valueWidth, mostColumns},
                          {"the latent width", spec.latentWidth, mostColumns}};
  for (const Range& range : ranges)
    if (llvm::Error error = checkRange(range.what, range.value, range.most))
      return error;
  return llvm::Error::success();
}

llvm::Error checkHeads(const DecoderSpec& spec) {
  if (spec.heads % spec.kvHeads != 0)
    return usageError("{} heads cannot share {} key/value heads", spec.heads, spec.kvHeads)
        .hint("the number of heads must be a multiple of the number of key/value heads");
  const bool isUngrouped = spec.isLatent() || spec.kind == DecoderKind::EncoderDecoder;
  if (isUngrouped && spec.kvHeads != spec.heads)
    return usageError("this kind has one key/value head for each head, not {} for {}", spec.kvHeads,
                      spec.heads);
  if (spec.isRotary() && (spec.isLatent() ? spec.ropeWidth : spec.headWidth) % 2 != 0)
    return usageError("{} columns cannot be rotated in pairs",
                      spec.isLatent() ? spec.ropeWidth : spec.headWidth);
  const bool mayHaveWindow = spec.kind == DecoderKind::Window || spec.isLatent();
  if (spec.window < (spec.kind == DecoderKind::Window ? 1 : 0) ||
      (!mayHaveWindow && spec.window != 0))
    return usageError("a window of {}", spec.window)
        .hint("decoders of kind window have one of at least 1 token, those of kind mla and "
              "mla-latent may have one, others have none");
  return llvm::Error::success();
}

llvm::Error checkCodes(const DecoderSpec& spec) {
  if (spec.codeBits == 0 && spec.columnScales)
    return usageError("scales of columns are those of caches of codes");
  if (spec.codeBits == 0)
    return llvm::Error::success();
  const bool isContrib = spec.spelling == DecoderSpelling::GroupQueryAttention;
  const bool isLlamaLike = spec.kind == DecoderKind::Llama || spec.kind == DecoderKind::Window;
  if (spec.codeBits != 8 && (spec.codeBits != 4 || !isContrib))
    return usageError("caches of codes of {} bits", spec.codeBits)
        .hint("they have 8 bits, or 4 with GroupQueryAttention");
  if (!isContrib && (!spec.isPrimitive() || !isLlamaLike || spec.real != ElementType::Float))
    return usageError("caches hold codes with GroupQueryAttention, and in float32 decoders of kind "
                      "llama and window in primitive spellings");
  return llvm::Error::success();
}

llvm::Error checkSpelling(const DecoderSpec& spec) {
  const bool isMixedWidth = spec.isLatent() || spec.kind == DecoderKind::EncoderDecoder;
  if (spec.spelling == DecoderSpelling::GroupQueryAttention && isMixedWidth)
    return usageError("GroupQueryAttention cannot compute attention of this kind");
  if (spec.spelling == DecoderSpelling::Attention && spec.kind == DecoderKind::MlaLatent)
    return usageError("latent rows are cached in primitive spellings only");
  if (spec.kind == DecoderKind::Hybrid && spec.layers < 2)
    return usageError("a hybrid has at least two layers, a convolution and attention");
  if (spec.kind == DecoderKind::Hybrid && spec.spelling != DecoderSpelling::GroupQueryAttention)
    return usageError("hybrids are spelled with GroupQueryAttention only");
  const bool isLlamaLike = spec.kind == DecoderKind::Llama || spec.kind == DecoderKind::Window;
  if (spec.merged && (!spec.isPrimitive() || !isLlamaLike))
    return usageError("only primitive spellings of llama and window can be merged");
  if (spec.cache != DecoderCache::Growing && (!spec.isPrimitive() || !isLlamaLike || spec.merged))
    return usageError(
        "only primitive spellings of llama and window, in one graph, have other caches "
        "than growing ones");
  if (spec.cache == DecoderCache::LastRows && spec.window < 2)
    return usageError("caches of the last rows need a window of at least 2 tokens");
  if (llvm::Error error = checkCodes(spec))
    return error;
  if (spec.fourBit && spec.real != ElementType::Float)
    return usageError("four-bit weights go with float32 activations");
  if (spec.fourBit && spec.transposedWeights)
    return usageError("four-bit weights are not transposed");
  if (spec.fourBit && spec.kind == DecoderKind::MlaLatent)
    return usageError("absorbed projections have no four-bit form");
  const int64_t least = spec.spelling == DecoderSpelling::Attention ? 23 : 14;
  if (spec.opset < least || spec.opset > 24)
    return usageError("opset {}, it must be from {} to 24 for this spelling", spec.opset, least);
  if (spec.real == ElementType::BFloat16 && spec.opset < 17)
    return usageError("bfloat16 needs opset 17, not {}", spec.opset);
  return llvm::Error::success();
}

int64_t defaultKvHeads(const DecoderSpec& spec) {
  const bool isGrouped = spec.kind == DecoderKind::Llama || spec.kind == DecoderKind::Window ||
                         spec.kind == DecoderKind::Hybrid;
  if (!isGrouped || spec.heads < 2)
    return spec.heads;
  for (int64_t shared : {4, 2, 3})
    if (spec.heads % shared == 0)
      return spec.heads / shared;
  return 1;
}

int64_t defaultOpset(DecoderSpelling spelling) {
  switch (spelling) {
  case DecoderSpelling::TorchScript:
    return 17;
  case DecoderSpelling::Dynamo:
    return 18;
  case DecoderSpelling::Attention:
    return 23;
  case DecoderSpelling::GroupQueryAttention:
    return 21;
  }
  return 17;
}

} // namespace

llvm::Expected<DecoderSpec> resolved(DecoderSpec spec) {
  auto otherwise = [](int64_t& extent, int64_t value) {
    if (extent == 0)
      extent = value;
  };
  if (llvm::Error error = checkRange("the hidden width", spec.hidden, mostColumns))
    return error;
  if (llvm::Error error = checkRange("the number of heads", spec.heads, mostHeads))
    return error;
  if (spec.headWidth == 0 && spec.hidden % spec.heads != 0)
    return usageError("a hidden width of {} cannot be shared by {} heads", spec.hidden, spec.heads)
        .hint("give the width of a head");
  otherwise(spec.kvHeads, defaultKvHeads(spec));
  otherwise(spec.headWidth, spec.hidden / spec.heads);
  otherwise(spec.intermediate, 4 * spec.hidden);
  otherwise(spec.ropeWidth, std::max<int64_t>(2, spec.headWidth / 2 / 2 * 2));
  otherwise(spec.valueWidth, spec.headWidth);
  otherwise(spec.latentWidth, 4 * spec.headWidth);
  otherwise(spec.opset, defaultOpset(spec.spelling));
  if (spec.kind == DecoderKind::Window)
    otherwise(spec.window, 1024);
  if (llvm::Error error = checkExtents(spec))
    return error;
  if (llvm::Error error = checkHeads(spec))
    return error;
  if (llvm::Error error = checkSpelling(spec))
    return error;
  return spec;
}

} // namespace kvopt::driver
