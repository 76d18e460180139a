// If: one of two subgraphs, which capture values of the enclosing graphs.
//
// Versions: every opset.
#include "runtime/exec/kernel.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error runIf(KernelContext& context) {
  const TensorView& condition = context.in(0);
  if (condition.element != ElementType::Bool || condition.elementCount() != 1)
    return context.error("the condition is not one bool");
  bool isTaken = *condition.as<uint8_t>() != 0;
  return context.runBranch(isTaken ? "then_branch" : "else_branch");
}

} // namespace

void register_if(KernelRegistry& registry) { registry.add("If", 1, runIf); }

} // namespace kvopt::kernels
