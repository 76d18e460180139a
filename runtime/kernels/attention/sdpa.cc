// ai.kvopt::Sdpa: grouped attention over keys and values of equal length; int8 values are plain
// numbers. For the formula, see AttentionView (runtime/simd/attention/attention.h).
#include "runtime/attention/attention_call.h"
#include "runtime/attention/past_lengths.h"

#include <algorithm>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error sdpa(KernelContext& context) {
  const Node& node = context.node();
  AttentionOperands operands;
  operands.query = context.in(0);
  operands.key = context.in(1);
  operands.value = context.in(2);
  operands.mask = context.input(3);
  operands.sinks = context.input(4);
  bool isBoolean = operands.mask && operands.mask->element == ElementType::Bool;
  if (node.attribute("mask_boolean") && operands.mask &&
      isBoolean != (node.intAttr("mask_boolean", 0) != 0))
    return context.error("mask_boolean does not agree with the mask's element type");
  operands.scale = node.floatAttr("scale", 1.0f);
  operands.causal = node.intAttr("causal", 0) != 0;
  operands.window = node.intAttr("window", 0);
  operands.softcap = node.floatAttr("softcap", 0.0f);
  if (operands.key.rank() == 4 && operands.value.rank() == 4)
    readBytesAsNumbers(operands);
  if (context.has(5)) {
    if (operands.query.rank() != 4 || operands.key.rank() != 4)
      return context.error("query and key must have rank 4");
    auto lengths = totalLengths(context, 5, operands.query.shape[0], operands.query.shape[2],
                                operands.key.shape[2]);
    if (!lengths)
      return lengths.takeError();
    operands.totalLengths = *lengths;
    const int64_t longest = *std::max_element(lengths->begin(), lengths->end());
    const bool isOfReadKeys =
        operands.mask && operands.mask->rank() != 0 && operands.mask->shape.back() == longest;
    operands.maskTokens = isOfReadKeys ? longest : operands.key.shape[2];
  }
  return attentionResult(context, operands, 0);
}

} // namespace

void register_sdpa(KernelRegistry& registry) { registry.add("ai.kvopt::Sdpa", 1, sdpa); }

} // namespace kvopt::kernels
