// Mask and scale of ONNX Runtime's attention operators, and the attention call.
#include "runtime/attention/masked_attention.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/attention/padding_mask.h"
#include "runtime/kernels/support/integer_input.h"

#include <algorithm>
#include <cmath>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

llvm::Error maskedAttentionResult(KernelContext& context, const MaskedAttention& attention) {
  const Node& node = context.node();
  AttentionOperands operands;
  operands.query = attention.query;
  operands.key = attention.key;
  operands.value = attention.value;
  operands.scale = node.floatAttr("scale", 0.0f);
  if (operands.scale == 0.0f)
    operands.scale =
        1.0f / std::sqrt(static_cast<float>(std::max<int64_t>(attention.query.shape[3], 1)));
  const bool causal = node.intAttr("unidirectional", 0) == 1;
  // Checked before memory for a mask is allocated.
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  const Extents& shape = attention.query.shape;
  PaddingMaskRequest request;
  request.visible = attention.paddingOperand ? context.input(*attention.paddingOperand) : nullptr;
  request.bias = attention.biasOperand ? context.input(*attention.biasOperand) : nullptr;
  TensorView mask;
  const int64_t keys = attention.value.shape[2];
  const bool isAligned = keys - attention.pastRows == shape[2];
  if (!request.visible && (!causal || (isAligned && !request.bias))) {
    // Causality needs no explicit mask, because every row sees its own token.
    operands.causal = causal;
    operands.mask = request.bias;
  } else {
    IntegerList visible;
    if (request.visible) {
      auto given = integerListOf(context, *attention.paddingOperand);
      if (!given)
        return given.takeError();
      visible = *given;
    }
    request.batches = shape[0];
    request.heads = shape[1];
    request.rows = shape[2];
    request.keys = keys;
    request.pastRows = attention.pastRows;
    request.causal = causal;
    request.hasStartPositions = attention.hasStartPositions;
    request.hidden = node.floatAttr("mask_filter_value", -10000.0f);
    auto made = paddingMask(context, request, visible);
    if (!made)
      return made.takeError();
    mask = *made;
    operands.mask = &mask;
  }
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  auto output = context.output(0, attention.query.element,
                               {shape[0], shape[2], shape[1] * attention.value.shape[3]});
  if (!output)
    return output.takeError();
  return runAttention(context, operands, viewOfHeads(*output, shape[1]));
}

} // namespace kvopt::runtime
