// com.microsoft::DecoderMaskedMultiHeadAttention: attention of one new token per batch row.
//
//   qk [B,H,1,T]    = scale * (q + bias_q) K^T + attention_bias + masks
//   output [B,1,H*Dv] = softmax(qk) V
//
// Self attention has query [B,1,H*D], key [B,1,H*D] and value [B,1,H*Dv], or only query
// [B,1,3*H*D], which holds all three. K and V are the past's rows followed by the new row, to which
// its part of bias [H*(2D+Dv)] is added.
//
// Cross attention has key [B,H,L,D] and value [B,H,L,Dv], which already include their bias.
//
// With past_present_share_buffer, the past is a buffer [B,H,C,D] whose first past_sequence_length
// rows are valid. Only the new row is written, after these. Rows of keys are in order, as in ONNX
// Runtime's CPU provider; its CUDA provider interleaves them.
//
// With cache_indirection [B/beams,beams,>=P] and a shared buffer, row j of the past of batch row b
// is row j of batch row floor(b/beams)*beams + cache_indirection[b,j].
//
// mask_filter_value is added for keys whose mask_index [B,T] is not positive.
#include "runtime/attention/attention_call.h"
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/padding_mask.h"
#include "runtime/attention/projection_bias.h"
#include "runtime/exec/input_binding.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

enum Operand : unsigned {
  Query,
  Key,
  Value,
  MaskIndex,
  AttentionBias,
  PastKey,
  PastValue,
  PastLength,
  BeamWidth,
  CacheIndirection,
  ProjectionBias,
};

bool isOn(const KernelContext& context, llvm::StringRef flag) {
  return context.node().intAttr(flag, 0) != 0;
}

/// The new token's rows, [B,H,1,D] and [B,H,1,Dv], or the rows of cross attention, [B,H,L,D].
struct TokenRows {
  TensorView query, key, value;
  bool isCross = false;
};

llvm::Expected<TokenRows> tokenRows(const KernelContext& context, int64_t heads) {
  const TensorView& query = context.in(Query);
  if (query.rank() != 3 || query.shape[1] != 1)
    return context.error("the query must be [B,1,H*D]: one token per batch row");
  if (context.has(Key) != context.has(Value))
    return context.error("a key without a value, or the other way round");
  const bool isPacked = !context.has(Key);
  if (query.shape[2] % heads != 0 || (isPacked && query.shape[2] / heads % 3 != 0))
    return context.error(formatted("the last extent {} of the query does not split into {} heads"
                                   "{}",
                                   query.shape[2], heads,
                                   isPacked ? " of query, key and value" : ""));
  if (isPacked) {
    const int64_t width = query.shape[2] / 3;
    auto part = [&](int64_t index) {
      return viewOfHeads(slicedAxis(query, 2, index * width, width), heads);
    };
    return TokenRows{part(0), part(1), part(2)};
  }
  TokenRows rows;
  rows.query = viewOfHeads(query, heads);
  rows.isCross = context.in(Key).rank() == 4;
  if (context.in(Value).rank() != context.in(Key).rank())
    return context.error("key and value differ in rank");
  auto key = headsOf(context, context.in(Key), heads, "the key");
  if (!key)
    return key.takeError();
  auto value = headsOf(context, context.in(Value), heads, "the value");
  if (!value)
    return value.takeError();
  rows.key = *key;
  rows.value = *value;
  const Extents& shape = rows.query.shape;
  const int64_t count = rows.isCross ? rows.key.shape[2] : 1;
  if (rows.key.shape != Extents{shape[0], heads, count, shape[3]} ||
      rows.value.shape != Extents{shape[0], heads, count, rows.value.shape[3]} ||
      rows.key.element != query.element || rows.value.element != query.element)
    return context.error("key and value must be [B,1,H*D], or [B,H,L,D] for cross attention, with "
                         "the query's batch size, width and element type");
  return rows;
}

/// The past of keys or of values, and the rows appended to it.
struct CacheSide {
  unsigned operand;      ///< operand of the past
  unsigned result;       ///< result of the present
  TensorView fresh = {}; ///< [B,H,1,W]
};

/// Number of valid rows of the past.
llvm::Expected<int64_t> pastRows(KernelContext& context, const CacheSide& side) {
  const TensorView& past = context.in(side.operand);
  const Extents& fresh = side.fresh.shape;
  if (past.rank() != 4 || past.shape[0] != fresh[0] || past.shape[1] != fresh[1] ||
      past.shape[3] != fresh[3] || past.element != side.fresh.element)
    return context.error("a past must be [B,H,P,D] with the batch size, heads, width and element "
                         "type of the new row");
  const bool sharesBuffer = isOn(context, "past_present_share_buffer");
  if (!context.has(PastLength)) {
    if (sharesBuffer)
      return context.error("past_present_share_buffer needs past_sequence_length");
    return past.shape[2];
  }
  auto length = integerOf(context, PastLength);
  if (!length)
    return length.takeError();
  if (sharesBuffer ? *length < 0 || *length >= past.shape[2] : *length != past.shape[2])
    return context.error(formatted("past_sequence_length {} and a new row do not fit a past of "
                                   "{} rows{}",
                                   *length, past.shape[2],
                                   sharesBuffer ? "" : " that is not a shared buffer"));
  return *length;
}

/// Source batch row of the rows of each past.
struct Beams {
  IntegerList indirection; ///< [B, columns]
  int64_t count = 1;
  int64_t columns = 0;

  int64_t source(int64_t batch, int64_t row) const {
    return batch / count * count + indirection[static_cast<size_t>(batch * columns + row)];
  }
};

/// nullopt without cache_indirection.
llvm::Expected<std::optional<Beams>> beamsOf(KernelContext& context, int64_t batches,
                                             int64_t rows) {
  int64_t width = 1;
  if (context.has(BeamWidth)) {
    auto given = integerOf(context, BeamWidth);
    if (!given)
      return given.takeError();
    width = *given;
  }
  if (!context.has(CacheIndirection)) {
    if (width > 1)
      return context.error(formatted("a beam_width of {} needs cache_indirection", width));
    return std::nullopt;
  }
  if (!isOn(context, "past_present_share_buffer"))
    return context.error("cache_indirection needs past_present_share_buffer");
  const Extents& shape = context.in(CacheIndirection).shape;
  if (shape.size() != 3 || shape[1] <= 0 || (context.has(BeamWidth) && shape[1] != width) ||
      batches % shape[1] != 0 || shape[0] != batches / shape[1] || shape[2] < rows)
    return context.error(formatted("cache_indirection must be [B/beams,beams,P or more] with "
                                   "B = {}, beam_width beams and P = {}",
                                   batches, rows));
  auto indirection = integerListOf(context, CacheIndirection);
  if (!indirection)
    return indirection.takeError();
  Beams beams{*indirection, shape[1], shape[2]};
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t beam = beams.indirection[static_cast<size_t>(batch * beams.columns + row)];
      if (beam < 0 || beam >= beams.count)
        return context.error(formatted("cache_indirection names beam {} of {}", beam, beams.count));
    }
  return beams;
}

/// Copies `rows` rows of each batch row and head of `from`, taken from the batch rows in `beams`.
void gatherRows(const TensorView& from, const TensorView& to, int64_t rows, const Beams& beams) {
  const auto elementBytes = static_cast<int64_t>(*byteWidth(from.element));
  const auto rowBytes = static_cast<size_t>(from.shape[3] * elementBytes);
  if (rowBytes == 0)
    return;
  for (int64_t batch = 0; batch < to.shape[0]; ++batch)
    for (int64_t head = 0; head < to.shape[1]; ++head)
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(to.data + elementBytes * (batch * to.strides[0] + head * to.strides[1] +
                                              row * to.strides[2]),
                    from.data + elementBytes * (beams.source(batch, row) * from.strides[0] +
                                                head * from.strides[1] + row * from.strides[2]),
                    rowBytes);
}

/// Uninitialized memory for the present and for the rows that attention reads.
struct CacheMemory {
  TensorView present, attended;
};

llvm::Expected<CacheMemory> cacheMemory(KernelContext& context, const CacheSide& side, int64_t past,
                                        bool gathers) {
  const Extents& fresh = side.fresh.shape;
  const Extents joined{fresh[0], fresh[1], past + 1, fresh[3]};
  CacheMemory memory;
  if (gathers) {
    auto gathered = scratchTensor(context, side.fresh.element, joined);
    if (!gathered)
      return gathered.takeError();
    memory.attended = *gathered;
  }
  auto present = isOn(context, "past_present_share_buffer")
                     ? presentStorage(context, side.result, side.operand)
                     : outputOrScratch(context, side.result, side.fresh.element, joined);
  if (!present)
    return present.takeError();
  memory.present = *present;
  if (!gathers)
    memory.attended = slicedAxis(*present, 2, 0, past + 1);
  return memory;
}

void writeRows(KernelContext& context, const CacheSide& side, const CacheMemory& memory,
               int64_t past, const std::optional<Beams>& beams) {
  if (!isOn(context, "past_present_share_buffer") && context.has(side.operand))
    copyRows(context.in(side.operand), slicedAxis(memory.present, 2, 0, past));
  if (beams)
    gatherRows(memory.present, memory.attended, past, *beams);
  copyRows(side.fresh, slicedAxis(memory.present, 2, past, 1));
  if (beams)
    copyRows(side.fresh, slicedAxis(memory.attended, 2, past, 1));
  if (context.wants(side.result) && isOn(context, "past_present_share_buffer"))
    context.noteCacheWrite(side.fresh.elementCount() * *byteWidth(side.fresh.element));
}

/// The float mask [1|B,1|H,1,T]; nullopt if both operands are absent.
llvm::Expected<std::optional<TensorView>> maskOf(KernelContext& context, const TensorView& query,
                                                 int64_t keys) {
  PaddingMaskRequest request;
  request.visible = context.input(MaskIndex);
  request.bias = context.input(AttentionBias);
  if (!request.visible && !request.bias)
    return std::nullopt;
  request.batches = query.shape[0];
  request.heads = query.shape[1];
  request.rows = 1;
  request.keys = keys;
  request.hidden = context.node().floatAttr("mask_filter_value", -10000.0f);
  IntegerList visible;
  if (request.visible) {
    if (request.visible->shape != Extents{request.batches, keys})
      return context.error(formatted("mask_index {} is not [B,T] = [{},{}]",
                                     extentsText(request.visible->shape), request.batches, keys));
    auto given = integerListOf(context, MaskIndex);
    if (!given)
      return given.takeError();
    visible = *given;
  }
  auto mask = paddingMask(context, request, visible);
  if (!mask)
    return mask.takeError();
  return *mask;
}

/// Result 3: the scores before the softmax, in float or in the declared type.
llvm::Error scoresResult(KernelContext& context, const AttentionOperands& operands) {
  const Extents& shape = operands.query.shape;
  const int64_t keys = operands.key.shape[2];
  ElementType element = context.node().result(3).type().elementType();
  if (element == ElementType::Undefined)
    element = operands.query.element;
  auto scores = context.output(3, element, {shape[0], shape[1], 1, keys});
  if (!scores)
    return scores.takeError();
  auto out = floatResult(context, *scores);
  if (!out)
    return out.takeError();
  auto copyOf = [&](const TensorView& rows) -> llvm::Expected<const float*> {
    auto packed = scratchTensor(context, rows.element, rows.shape);
    if (!packed)
      return packed.takeError();
    copyRows(rows, *packed);
    return floatsOf(context, *packed);
  };
  auto query = copyOf(operands.query);
  if (!query)
    return query.takeError();
  auto key = copyOf(operands.key);
  if (!key)
    return key.takeError();
  float* next = *out;
  for (int64_t plane = 0; plane < shape[0] * shape[1]; ++plane)
    for (int64_t j = 0; j < keys; ++j) {
      const float* q = *query + plane * shape[3];
      const float* k = *key + (plane * keys + j) * shape[3];
      double sum = 0;
      for (int64_t d = 0; d < shape[3]; ++d)
        sum += double{q[d]} * double{k[d]};
      float score = static_cast<float>(sum * double{operands.scale});
      if (operands.mask) {
        const TensorView& mask = *operands.mask;
        const int64_t batch = mask.shape[0] == 1 ? 0 : plane / shape[1];
        const int64_t head = mask.shape[1] == 1 ? 0 : plane % shape[1];
        score += mask.as<float>()[batch * mask.strides[0] + head * mask.strides[1] + j];
      }
      *next++ = score;
    }
  storeFloats(*out, *scores);
  return llvm::Error::success();
}

llvm::Error addBias(KernelContext& context, TokenRows& rows) {
  const TensorView& bias = context.in(ProjectionBias);
  const int64_t heads = rows.query.shape[1];
  const int64_t widths[] = {heads * rows.query.shape[3], heads * rows.key.shape[3],
                            heads * rows.value.shape[3]};
  if (bias.element != rows.query.element ||
      bias.elementCount() != widths[0] + widths[1] + widths[2])
    return context.error("bias must be [H*(2D+Dv)] of the query's element type");
  int64_t first = 0;
  unsigned part = 0;
  for (TensorView* tensor : {&rows.query, &rows.key, &rows.value}) {
    if (tensor != &rows.query && rows.isCross)
      break;
    auto sum = withProjectionBias(context, *tensor, ProjectionBias, first);
    if (!sum)
      return sum.takeError();
    *tensor = *sum;
    first += widths[part++];
  }
  return llvm::Error::success();
}

/// Sets query, scale and the mask over `keys` keys; `mask` owns the memory for `operands`.
llvm::Error prepareScores(KernelContext& context, const TokenRows& rows, int64_t keys,
                          std::optional<TensorView>& mask, AttentionOperands& operands) {
  auto made = maskOf(context, rows.query, keys);
  if (!made)
    return made.takeError();
  mask = *made;
  operands.query = rows.query;
  operands.mask = mask ? &*mask : nullptr;
  operands.scale = context.node().floatAttr("scale", 0.0f);
  if (operands.scale == 0.0f)
    operands.scale =
        1.0f / std::sqrt(static_cast<float>(std::max<int64_t>(rows.query.shape[3], 1)));
  return llvm::Error::success();
}

llvm::Error attend(KernelContext& context, const AttentionOperands& operands) {
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  if (context.wants(3))
    if (llvm::Error error = scoresResult(context, operands))
      return error;
  const Extents& shape = operands.query.shape;
  auto output =
      context.output(0, operands.query.element, {shape[0], 1, shape[1] * operands.value.shape[3]});
  if (!output)
    return output.takeError();
  return runAttention(context, operands, viewOfHeads(*output, shape[1]));
}

llvm::Error selfAttention(KernelContext& context, const TokenRows& rows) {
  CacheSide sides[] = {{PastKey, 1, rows.key}, {PastValue, 2, rows.value}};
  int64_t past = 0;
  if (context.has(PastKey)) {
    for (const CacheSide& side : sides) {
      auto count = pastRows(context, side);
      if (!count)
        return count.takeError();
      past = *count;
    }
    if (context.in(PastKey).shape[2] != context.in(PastValue).shape[2])
      return context.error("the pasts of keys and values differ in length");
  } else if (isOn(context, "past_present_share_buffer")) {
    return context.error("past_present_share_buffer needs past_key and past_value");
  }
  auto beams = beamsOf(context, rows.query.shape[0], past);
  if (!beams)
    return beams.takeError();
  AttentionOperands operands;
  std::optional<TensorView> mask;
  if (llvm::Error error = prepareScores(context, rows, past + 1, mask, operands))
    return error;
  CacheMemory memory[2];
  for (unsigned i : {0u, 1u}) {
    auto made = cacheMemory(context, sides[i], past, beams->has_value());
    if (!made)
      return made.takeError();
    memory[i] = *made;
  }
  operands.key = memory[0].attended;
  operands.value = memory[1].attended;
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  for (unsigned i : {0u, 1u})
    writeRows(context, sides[i], memory[i], past, *beams);
  return attend(context, operands);
}

llvm::Error decoderMaskedMultiHeadAttention(KernelContext& context) {
  const int64_t heads = context.node().intAttr("num_heads", 0);
  if (heads <= 0)
    return context.error("num_heads must be positive");
  if (context.has(PastKey) != context.has(PastValue))
    return context.error("a past of keys without one of values, or the other way round");
  if (context.wants(3) && !isOn(context, "output_qk"))
    return context.error("the result qk without output_qk");
  auto rows = tokenRows(context, heads);
  if (!rows)
    return rows.takeError();
  if (context.has(ProjectionBias))
    if (llvm::Error error = addBias(context, *rows))
      return error;
  if (!rows->isCross)
    return selfAttention(context, *rows);
  if (context.has(PastKey) || context.has(CacheIndirection) || context.wants(1) || context.wants(2))
    return context.error("cross attention has neither past_key and present_key nor "
                         "cache_indirection");
  AttentionOperands operands;
  std::optional<TensorView> mask;
  if (llvm::Error error = prepareScores(context, *rows, rows->key.shape[2], mask, operands))
    return error;
  operands.key = rows->key;
  operands.value = rows->value;
  return attend(context, operands);
}

} // namespace

void register_decoder_masked_multi_head_attention(KernelRegistry& registry) {
  registry.add("com.microsoft::DecoderMaskedMultiHeadAttention", 1,
               decoderMaskedMultiHeadAttention);
}

} // namespace kvopt::kernels
