// ai.kvopt::Sdpa: grouped attention over keys and values of one length. The formula is that of
// AttentionView (runtime/kernels/simd/attention.h).
#include "runtime/attention_call.h"

namespace kvopt {
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
  return attentionResult(context, operands, 0);
}

} // namespace

void register_sdpa(KernelRegistry& registry) { registry.add("ai.kvopt::Sdpa", 1, sdpa); }

} // namespace kvopt
