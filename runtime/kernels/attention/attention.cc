// Attention (opset 23 and later):
//
//   Y = softmax(softcap(scale * Q K'^T) + mask) V'         (formula: AttentionView)
//
// Q, K and V are [B,H,S,D], or [B,S,H*D] with q_num_heads and kv_num_heads; Y has Q's layout. K'
// and V' are the presents: the rows of the past, then K or V. scale defaults to 1 / sqrt(D).
//
// Query row i of batch row b is at position p = i + offset. The offset is the past's length, or
// nonpad_kv_seqlen[b] - S, which may be negative, or 0 without either. The row sees key j if and
// only if all of these hold:
//
//   is_causal           j <= p
//   left_window_size    p - j <= left_window_size, unless that is -1 (opset 25)
//   right_window_size   j - p <= right_window_size, unless that is -1 (opset 25)
//   nonpad_kv_seqlen    j < nonpad_kv_seqlen[b]
//   attn_mask           additive or boolean; keys beyond its last column are hidden
//
// A row that sees no key is zero in Y and in the probabilities.
//
//   qk_matmul_output    mode 0: scale * Q K'^T; 1: after the softcap; 2: after softcap and mask,
//                       the operand of the softmax; 3: its result
//
// The softcap comes before the mask in every version. Until ONNX 1.20 the specification applied it
// after the mask, so that a hidden key counted like a score of -softcap, and modes 1 and 2 were the
// scores after the mask and after mask and softcap.
//
// Softmax and sums are computed in f32, independently of softmax_precision.
#include "ir/ops/attention_operands.h"
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/attention_scores.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include <cmath>
#include <limits>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Keys that positions of query rows hide: before p - left and after p + right.
struct Frontier {
  std::optional<int64_t> left;
  std::optional<int64_t> right;

  bool hides(int64_t position, int64_t key) const {
    return (left && position - key > *left) || (right && key - position > *right);
  }
};

/// The mask as [1|B, 1|H, S, T], which also hides keys after its last column and keys outside of
/// the frontier. `offsets` holds one offset, or one per batch row.
llvm::Expected<TensorView> explicitMask(KernelContext& context, const AttentionOperands& operands,
                                        const Frontier& frontier, llvm::ArrayRef<int64_t> offsets) {
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
  const bool perBatchRow = offsets.size() != 1;
  const int64_t batches = perBatchRow ? operands.query.shape[0] : extent(0);
  auto result = scratchTensor(context, isBoolean ? ElementType::Bool : ElementType::Float,
                              {batches, extent(1), rows, columns});
  if (!result)
    return result;
  const int64_t known = !mask || extent(3) == 1 ? columns : extent(3);
  int64_t at = 0;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const int64_t offset = offsets[perBatchRow ? static_cast<size_t>(batch) : 0];
    for (int64_t head = 0; head < extent(1); ++head)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column, ++at) {
          const bool hidden = column >= known || frontier.hides(row + offset, column);
          const int64_t from =
              batch * stride(0) + head * stride(1) + row * stride(2) + column * stride(3);
          if (isBoolean)
            result->as<uint8_t>()[at] =
                !hidden && (!mask || mask->as<uint8_t>()[from] != 0) ? 1 : 0;
          else
            result->as<float>()[at] =
                hidden ? -std::numeric_limits<float>::infinity() : floats[from];
        }
  }
  return result;
}

/// Checks the shape of the mask, because explicitMask reads it before checkAttention runs.
llvm::Error checkMaskShape(KernelContext& context, const AttentionOperands& operands) {
  const TensorView& mask = *operands.mask;
  const int64_t keys = operands.value.shape[2];
  if (mask.rank() == 0 || mask.rank() > 4)
    return context.error(formatted("a mask of rank {}", mask.rank()));
  const int64_t columns = mask.shape.back();
  if (columns > keys)
    return context.error(formatted("a mask of {} columns for {} keys", columns, keys));
  if (columns == 1 && keys != 1)
    return context.error(formatted("a mask of one column for {} keys: the specification says "
                                   "both that it repeats and that the others are hidden",
                                   keys));
  const Extents& query = operands.query.shape;
  for (unsigned axis = 0; axis + 1 < mask.rank(); ++axis) {
    const int64_t wanted = query[axis + 4 - mask.rank()];
    if (mask.shape[axis] != 1 && mask.shape[axis] != wanted)
      return context.error(
          formatted("the mask's extent {} is neither 1 nor {}", mask.shape[axis], wanted));
  }
  return llvm::Error::success();
}

/// Fails for values of attributes that the specification does not define, or that engines interpret
/// differently.
llvm::Error checkAttributes(KernelContext& context) {
  const Node& node = context.node();
  for (const char* window : {"left_window_size", "right_window_size"})
    if (node.attribute(window)) {
      if (context.opset() < 25)
        return context.error(formatted("{} is an attribute of opset 25 and later", window));
      if (const int64_t size = node.intAttr(window, -1); size < -1)
        return context.error(formatted("{} = {} is neither -1 nor a number of keys", window, size));
    }
  if (const int64_t causal = node.intAttr("is_causal", 0); causal != 0 && causal != 1)
    return context.error(formatted("is_causal = {} is neither 0 nor 1", causal));
  if (const float softcap = node.floatAttr("softcap", 0.0f); !(softcap >= 0.0f))
    return context.error(formatted("softcap = {} is not supported", softcap));
  if (const int64_t mode = node.intAttr("qk_matmul_output_mode", 0); mode < 0 || mode > 3)
    return context.error(formatted("qk_matmul_output_mode = {} is unknown", mode));
  const int64_t asked = node.intAttr("softmax_precision", 1);
  for (ElementType element :
       {ElementType::Float, ElementType::Float16, ElementType::BFloat16, ElementType::Double})
    if (asked == static_cast<int64_t>(element))
      return llvm::Error::success();
  return context.error(formatted("softmax_precision = {} is not supported", asked));
}

/// With four axes, the shapes determine the numbers of heads: attributes may only repeat them, and
/// must be absent from opset 25 on.
llvm::Error checkHeadCounts(KernelContext& context) {
  const std::pair<const char*, unsigned> counts[] = {{"q_num_heads", 0}, {"kv_num_heads", 1}};
  for (const auto& [name, operand] : counts)
    if (context.in(operand).rank() == 4 && context.node().attribute(name)) {
      const int64_t heads = context.in(operand).shape[1];
      const int64_t stated = context.node().intAttr(name, 0);
      if (context.opset() >= 25 || stated != heads)
        return context.error(
            formatted("{} = {} for an operand of rank 4 and {} heads", name, stated, heads));
    }
  return llvm::Error::success();
}

/// Keys that is_causal and the windows leave visible to a query row. Omits bounds that hide none of
/// `keys` keys from any of `rows` rows, which keeps sums of positions and bounds small.
Frontier frontierOf(const Node& node, int64_t keys, int64_t rows) {
  auto bound = [&](const char* name) -> std::optional<int64_t> {
    const int64_t size = node.intAttr(name, -1);
    const bool hidesNothing = size < 0 || (size >= keys && size - keys >= rows);
    return hidesNothing ? std::nullopt : std::optional(size);
  };
  Frontier frontier{bound("left_window_size"), bound("right_window_size")};
  if (node.intAttr("is_causal", 0) != 0)
    frontier.right = 0;
  return frontier;
}

/// Checked values of nonpad_kv_seqlen.
llvm::Expected<Extents> keyLengths(KernelContext& context, const AttentionOperands& operands) {
  if (context.has(onnx_attention::PastKey) || context.has(onnx_attention::PastValue) ||
      context.wants(1) || context.wants(2))
    return context.error("nonpad_kv_seqlen together with a past or a present");
  auto lengths = integersOf(context, onnx_attention::KeyLengths);
  if (!lengths)
    return lengths;
  const int64_t keys = operands.value.shape[2];
  if (static_cast<int64_t>(lengths->size()) != operands.query.shape[0])
    return context.error("nonpad_kv_seqlen must be one length per batch row");
  for (int64_t length : *lengths)
    if (length < 0 || length > keys)
      return context.error(formatted("a length of {} of {} keys", length, keys));
  return lengths;
}

/// Memory for the operands' data.
struct Storage {
  Extents lengths;
  TensorView mask;
  TensorView addedMask;
};

/// The mask, converted to f32 if attention does not support its type; numbers beyond f32 become its
/// largest or lowest number. Null if absent.
llvm::Expected<const TensorView*> readableMask(KernelContext& context, TensorView& storage) {
  const TensorView* mask = context.input(onnx_attention::Mask);
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

/// Sets frontier, lengths and mask.
llvm::Error hideKeys(KernelContext& context, int64_t pastRows, AttentionOperands& operands,
                     Storage& storage) {
  const int64_t rows = operands.query.shape[2];
  const int64_t keys = operands.value.shape[2];
  const bool ragged = context.has(onnx_attention::KeyLengths);
  Extents offsets{pastRows};
  if (ragged) {
    auto lengths = keyLengths(context, operands);
    if (!lengths)
      return lengths.takeError();
    storage.lengths = std::move(*lengths);
    operands.totalLengths = storage.lengths;
    offsets.clear();
    for (int64_t length : storage.lengths)
      offsets.push_back(length - rows);
  }
  auto given = readableMask(context, storage.addedMask);
  if (!given)
    return given.takeError();
  operands.mask = *given;
  if (operands.mask)
    if (llvm::Error error = checkMaskShape(context, operands))
      return error;
  const bool shortMask = operands.mask && operands.mask->shape.back() < keys;
  const Frontier frontier = frontierOf(context.node(), keys, rows);
  // The attention call supports causality and windows to the left, with the offset T - S.
  const bool aligned = ragged || keys - rows == pastRows;
  const bool isCalls = aligned && frontier.right.value_or(0) == 0;
  const bool isHidden = frontier.left || frontier.right;
  if (isCalls) {
    operands.causal = frontier.right.has_value();
    operands.window = frontier.left ? *frontier.left + 1 : 0;
  }
  if (!shortMask && (isCalls || !isHidden))
    storage.mask = operands.mask ? *operands.mask : TensorView();
  else if (auto widened = explicitMask(context, operands, isCalls ? Frontier() : frontier,
                                       isCalls ? llvm::ArrayRef<int64_t>(pastRows) : offsets))
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
  if (llvm::Error error = checkHeadCounts(context))
    return error;
  if (context.in(0).rank() != context.in(1).rank() || context.in(1).rank() != context.in(2).rank())
    return context.error("query, key and value differ in rank");
  if (context.has(onnx_attention::PastKey) != context.has(onnx_attention::PastValue))
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
  auto key = presentOf(context, 1, context.input(onnx_attention::PastKey), *newKey);
  if (!key)
    return key.takeError();
  auto value = presentOf(context, 2, context.input(onnx_attention::PastValue), *newValue);
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
  // Checked before memory for a mask is allocated.
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  Storage storage;
  const int64_t pastRows =
      context.has(onnx_attention::PastKey) ? context.in(onnx_attention::PastKey).shape[2] : 0;
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
    const auto stage = static_cast<ScoreStage>(node.intAttr("qk_matmul_output_mode", 0));
    if (llvm::Error error = attentionScoresResult(context, operands, stage, 3))
      return error;
  }
  // The call's mask has one column for each key of the longest row.
  if (!operands.totalLengths.empty() && operands.mask && operands.mask->shape.back() != 1)
    storage.mask =
        slicedAxis(storage.mask, storage.mask.rank() - 1, 0,
                   *std::max_element(operands.totalLengths.begin(), operands.totalLengths.end()));
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  return runAttention(context, operands, flat ? viewOfHeads(*y, shape[1]) : *y);
}

} // namespace

void register_attention(KernelRegistry& registry) { registry.add("Attention", 23, attention); }

} // namespace kvopt::kernels
