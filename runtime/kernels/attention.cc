// Attention (opset 23 and later, without the windows of 25):
//
//   Y = softmax(softcap(scale * Q K'^T) + mask) V'         (formula: AttentionView)
//
// Q, K and V are [B,H,S,D], or [B,S,H*D] with q_num_heads and kv_num_heads; Y has Q's layout. K'
// and V' are the presents: the rows of the past, then K or V. scale defaults to 1 / sqrt(D).
//
//   is_causal          row i sees key j iff j <= i + offset, where the offset is the past's length,
//                      or nonpad_kv_seqlen[b] - S, or 0 with neither (aligned top-left)
//   nonpad_kv_seqlen   keys of batch row b from this number on are hidden
//   attn_mask          additive or boolean; keys beyond its last column are hidden
//   qk_matmul_output   mode 0: scale * Q K'^T; 1: mask added to that; 2: what the softmax reads; 3:
//                      its result
//
// The softcap comes before the mask. Up to ONNX 1.20 the specification had it after, where a hidden
// key would count as much as one of score -softcap.
#include "ir/format.h"
#include "runtime/attention_heads.h"
#include "runtime/attention_scores.h"
#include "runtime/element_dispatch.h"
#include "runtime/float_operand.h"
#include "runtime/integer_input.h"

#include <cmath>
#include <limits>

namespace kvopt {
namespace {

/// The mask as [1|B, 1|H, S, T], which hides the keys beyond its last column and, with an offset,
/// those that is_causal hides.
llvm::Expected<TensorView> explicitMask(KernelContext& context, const AttentionOperands& operands,
                                        std::optional<int64_t> causalOffset) {
  const TensorView* mask = operands.mask;
  const int64_t rows = operands.query.shape[2];
  const int64_t columns = operands.value.shape[2];
  auto extent = [&](unsigned axis) {
    return !mask || axis + mask->rank() < 4 ? 1 : mask->shape[axis + mask->rank() - 4];
  };
  auto stride = [&](unsigned axis) {
    return extent(axis) == 1 ? 0 : mask->strides[axis + mask->rank() - 4];
  };
  const bool isBoolean = !mask || mask->element == ElementType::Bool;
  const float* floats = nullptr;
  if (!isBoolean) {
    auto converted = floatsOf(context, *mask);
    if (!converted)
      return converted.takeError();
    floats = *converted;
  }
  auto result = scratchTensor(context, isBoolean ? ElementType::Bool : ElementType::Float,
                              {extent(0), extent(1), rows, columns});
  if (!result)
    return result;
  const int64_t known = !mask || extent(3) == 1 ? columns : extent(3);
  int64_t position = 0;
  for (int64_t batch = 0; batch < extent(0); ++batch)
    for (int64_t head = 0; head < extent(1); ++head)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column, ++position) {
          const bool hidden = column >= known || (causalOffset && column > row + *causalOffset);
          const int64_t at =
              batch * stride(0) + head * stride(1) + row * stride(2) + column * stride(3);
          if (isBoolean)
            result->as<uint8_t>()[position] =
                !hidden && (!mask || mask->as<uint8_t>()[at] != 0) ? 1 : 0;
          else
            result->as<float>()[position] =
                hidden ? -std::numeric_limits<float>::infinity() : floats[at];
        }
  return result;
}

/// What is wrong with the mask's shape, if anything: explicitMask reads it before checkAttention
/// has seen it.
llvm::Error checkMaskShape(KernelContext& context, const AttentionOperands& operands) {
  const TensorView& mask = *operands.mask;
  const int64_t keys = operands.value.shape[2];
  if (mask.rank() == 0 || mask.rank() > 4)
    return context.error(fmt::format("a mask of rank {}", mask.rank()));
  const int64_t columns = mask.shape.back();
  if (columns > keys)
    return context.error(fmt::format("a mask of {} columns for {} keys", columns, keys));
  if (columns == 1 && keys != 1)
    return context.error(fmt::format("a mask of one column for {} keys: the specification says "
                                     "both that it repeats and that the others are hidden",
                                     keys));
  const Extents& query = operands.query.shape;
  for (unsigned axis = 0; axis + 1 < mask.rank(); ++axis) {
    const int64_t wanted = query[axis + 4 - mask.rank()];
    if (mask.shape[axis] != 1 && mask.shape[axis] != wanted)
      return context.error(
          fmt::format("the mask's extent {} is neither 1 nor {}", mask.shape[axis], wanted));
  }
  return llvm::Error::success();
}

llvm::Error checkAttributes(KernelContext& context) {
  for (const char* window : {"left_window_size", "right_window_size"})
    if (context.node().intAttr(window, -1) != -1)
      return context.error(fmt::format("{} is not supported", window));
  const int64_t asked = context.node().intAttr("softmax_precision", 1);
  const auto element = static_cast<ElementType>(asked);
  if (asked < 0 || asked > 16 ||
      (element != ElementType::Float && element != ElementType::Float16 &&
       element != ElementType::BFloat16))
    return context.error(fmt::format("softmax_precision = {} is not supported", asked));
  return llvm::Error::success();
}

/// nonpad_kv_seqlen, checked.
llvm::Expected<Extents> keyLengths(KernelContext& context, const AttentionOperands& operands) {
  if (context.has(4) || context.has(5))
    return context.error("nonpad_kv_seqlen together with a past");
  auto lengths = integersOf(context, 6);
  if (!lengths)
    return lengths;
  const int64_t keys = operands.value.shape[2];
  if (static_cast<int64_t>(lengths->size()) != operands.query.shape[0])
    return context.error("nonpad_kv_seqlen must be one length per batch row");
  for (int64_t length : *lengths)
    if (length < 0 || length > keys)
      return context.error(fmt::format("a length of {} of {} keys", length, keys));
  return lengths;
}

/// Memory that the operands point to.
struct Storage {
  Extents lengths;
  TensorView mask;
  TensorView addedMask;
};

/// The mask, in f32 where it is of a type that attention does not read; what f32 cannot hold is the
/// largest or lowest number that it holds. Null when absent.
llvm::Expected<const TensorView*> readableMask(KernelContext& context, TensorView& storage) {
  const TensorView* mask = context.input(3);
  if (!mask || (mask->element != ElementType::Double && !isInteger(mask->element)))
    return mask;
  auto memory = context.scratch(static_cast<size_t>(mask->elementCount()) * sizeof(float));
  if (!memory)
    return memory.takeError();
  storage = TensorView::contiguous(ElementType::Float, mask->shape, memory->data());
  constexpr auto most = static_cast<double>(std::numeric_limits<float>::max());
  llvm::Error error =
      dispatch(NumericTypes(), context, mask->element, [&](auto tag) -> llvm::Error {
        using T = typename decltype(tag)::Type;
        for (int64_t i = 0; i < mask->elementCount(); ++i) {
          const auto value = static_cast<double>(load(mask->as<T>()[i]));
          storage.as<float>()[i] =
              static_cast<float>(std::isfinite(value) ? std::clamp(value, -most, most) : value);
        }
        return llvm::Error::success();
      });
  if (error)
    return error;
  return &storage;
}

/// Causal frontier, lengths and mask.
llvm::Error hideKeys(KernelContext& context, int64_t pastRows, AttentionOperands& operands,
                     Storage& storage) {
  const int64_t rows = operands.query.shape[2];
  const int64_t keys = operands.value.shape[2];
  const bool causal = context.node().intAttr("is_causal", 0) != 0;
  const bool ragged = context.has(6);
  if (ragged) {
    auto lengths = keyLengths(context, operands);
    if (!lengths)
      return lengths.takeError();
    storage.lengths = std::move(*lengths);
    operands.totalLengths = storage.lengths;
  }
  auto given = readableMask(context, storage.addedMask);
  if (!given)
    return given.takeError();
  operands.mask = *given;
  if (operands.mask)
    if (llvm::Error error = checkMaskShape(context, operands))
      return error;
  const bool shortMask = operands.mask && operands.mask->shape.back() < keys;
  // The attention call aligns bottom-right: with the offset T - S.
  const bool aligned = ragged || keys - rows == pastRows;
  operands.causal = causal && aligned;
  if (!shortMask && (!causal || aligned))
    storage.mask = operands.mask ? *operands.mask : TensorView();
  else if (auto widened = explicitMask(context, operands,
                                       causal && !aligned ? std::optional(pastRows) : std::nullopt))
    storage.mask = *widened;
  else
    return widened.takeError();
  operands.mask = storage.mask.element == ElementType::Undefined ? nullptr : &storage.mask;
  return llvm::Error::success();
}

llvm::Error attention(KernelContext& context) {
  const Node& node = context.node();
  if (llvm::Error error = checkAttributes(context))
    return error;
  if (context.in(0).rank() != context.in(1).rank() || context.in(1).rank() != context.in(2).rank())
    return context.error("query, key and value differ in rank");
  if (context.has(4) != context.has(5))
    return context.error("a past of keys without one of values, or the other way round");
  const int64_t groups = node.intAttr("kv_num_heads", 0);
  auto query = headsOf(context, context.in(0), node.intAttr("q_num_heads", 0), "the query");
  if (!query)
    return query.takeError();
  auto newKey = headsOf(context, context.in(1), groups, "the key");
  if (!newKey)
    return newKey.takeError();
  auto newValue = headsOf(context, context.in(2), groups, "the value");
  if (!newValue)
    return newValue.takeError();
  auto key = presentOf(context, 1, context.input(4), *newKey);
  if (!key)
    return key.takeError();
  auto value = presentOf(context, 2, context.input(5), *newValue);
  if (!value)
    return value.takeError();

  AttentionOperands operands;
  operands.query = *query;
  operands.key = *key;
  operands.value = *value;
  operands.softcap = node.floatAttr("softcap", 0.0f);
  const auto width = static_cast<double>(std::max<int64_t>(query->shape[3], 1));
  operands.scale = node.attribute("scale") ? node.floatAttr("scale", 1.0f)
                                           : static_cast<float>(1.0 / std::sqrt(width));
  // Before anything of the size of a mask is made.
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  Storage storage;
  const int64_t pastRows = context.has(4) ? context.in(4).shape[2] : 0;
  if (llvm::Error error = hideKeys(context, pastRows, operands, storage))
    return error;

  const bool flat = context.in(0).rank() == 3;
  const Extents& shape = query->shape;
  auto y = flat
               ? context.output(0, query->element, {shape[0], shape[2], shape[1] * value->shape[3]})
               : context.output(0, query->element, {shape[0], shape[1], shape[2], value->shape[3]});
  if (!y)
    return y.takeError();
  if (context.wants(3)) {
    const int64_t mode = node.intAttr("qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
      return context.error(fmt::format("qk_matmul_output_mode = {} is not known", mode));
    if (llvm::Error error =
            attentionScoresResult(context, operands, static_cast<ScoreStage>(mode), 3))
      return error;
  }
  // The call's mask has as many columns as the longest row has keys.
  if (!operands.totalLengths.empty() && operands.mask && operands.mask->shape.back() != 1)
    storage.mask =
        slicedAxis(storage.mask, storage.mask.rank() - 1, 0,
                   *std::max_element(operands.totalLengths.begin(), operands.totalLengths.end()));
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  return runAttention(context, operands, flat ? splitHeads(*y, shape[1]) : *y);
}

} // namespace

void register_attention(KernelRegistry& registry) { registry.add("Attention", 23, attention); }

} // namespace kvopt
