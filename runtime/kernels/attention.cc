// Attention (opset 23) on 4-D operands without caches:
//
//   Y = softmax(softcap(scale * Q K^T) + mask) V        (formula: AttentionView)
//
// is_causal without a past is aligned top-left: row i sees keys 0 … i. A mask with fewer columns
// than keys hides the keys it does not name (not supported). scale defaults to 1 / sqrt(D).
#include "runtime/attention_call.h"
#include "runtime/integer_input.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace kvopt {
namespace {

/// The mask widened to [1|B, 1|H, S, T] so that it also says what is_causal hides.
llvm::Expected<TensorView> causalMask(KernelContext& context, const TensorView* mask,
                                      int64_t batches, int64_t heads, int64_t rows,
                                      int64_t columns) {
  bool isBoolean = !mask || mask->element == ElementType::Bool;
  if (!isBoolean && mask->element != ElementType::Float)
    return context.error("is_causal with an additive mask needs one of floats");
  auto extent = [&](unsigned axis) {
    unsigned missing = mask ? 4 - mask->rank() : 4;
    return axis < missing ? int64_t{1} : mask->shape[axis - missing];
  };
  int64_t maskBatches = extent(0) == 1 ? 1 : batches;
  int64_t maskHeads = extent(1) == 1 ? 1 : heads;
  ElementType element = isBoolean ? ElementType::Bool : ElementType::Float;
  auto width = static_cast<int64_t>(*byteWidth(element));
  auto count = countOf(context, {maskBatches, maskHeads, rows, columns, width});
  if (!count)
    return count.takeError();
  auto memory = context.scratch(static_cast<size_t>(*count));
  if (!memory)
    return memory.takeError();
  auto result =
      TensorView::contiguous(element, {maskBatches, maskHeads, rows, columns}, memory->data());
  int64_t position = 0;
  for (int64_t batch = 0; batch < maskBatches; ++batch)
    for (int64_t head = 0; head < maskHeads; ++head)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column, ++position) {
          bool visible = column <= row;
          int64_t offset = 0;
          if (mask) {
            int64_t index[] = {batch, head, row, column};
            for (unsigned axis = 0; axis < 4; ++axis)
              if (extent(axis) != 1)
                offset += index[axis] * mask->strides[axis - (4 - mask->rank())];
          }
          if (isBoolean)
            result.as<uint8_t>()[position] =
                visible && (!mask || mask->as<uint8_t>()[offset] != 0) ? 1 : 0;
          else
            result.as<float>()[position] =
                visible ? mask->as<float>()[offset] : -std::numeric_limits<float>::infinity();
        }
  return result;
}

llvm::Error attention(KernelContext& context) {
  const Node& node = context.node();
  for (unsigned operand = 4; operand < context.inputCount(); ++operand)
    if (context.has(operand))
      return context.error("a past, or lengths of keys, are not supported");
  for (unsigned result = 1; result < node.results().size(); ++result)
    if (context.wants(result))
      return context.error("only the first result is supported");
  AttentionOperands operands;
  operands.query = context.in(0);
  operands.key = context.in(1);
  operands.value = context.in(2);
  operands.mask = context.input(3);
  operands.softcap = node.floatAttr("softcap", 0.0f);
  if (operands.query.rank() != 4)
    return context.error("operands of rank 3 are not supported");
  auto width = static_cast<double>(std::max<int64_t>(operands.query.shape[3], 1));
  operands.scale = node.attribute("scale") ? node.floatAttr("scale", 1.0f)
                                           : static_cast<float>(1.0 / std::sqrt(width));
  if (operands.mask && operands.mask->rank() != 0 && operands.key.rank() == 4 &&
      operands.mask->shape.back() != 1 && operands.mask->shape.back() < operands.key.shape[2])
    return context.error("a mask shorter than the keys is not supported");
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  TensorView withCausal;
  // With as many keys as rows, aligned top-left is aligned bottom-right.
  if (node.intAttr("is_causal", 0) != 0 && operands.query.shape[2] == operands.key.shape[2]) {
    operands.causal = true;
  } else if (node.intAttr("is_causal", 0) != 0) {
    auto widened =
        causalMask(context, operands.mask, operands.query.shape[0], operands.query.shape[1],
                   operands.query.shape[2], operands.key.shape[2]);
    if (!widened)
      return widened.takeError();
    withCausal = *widened;
    operands.mask = &withCausal;
  }
  return attentionResult(context, operands, 0);
}

} // namespace

void register_attention(KernelRegistry& registry) { registry.add("Attention", 23, attention); }

} // namespace kvopt
