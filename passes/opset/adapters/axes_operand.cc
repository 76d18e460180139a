// Axes that became an operand: Squeeze, Unsqueeze and ReduceSum since 13, the other reductions
// since 18.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
namespace {

constexpr const char* axesOperandAttributes[] = {"axes"};

void adaptAxesOperand(const OpsetEdit& edit) { edit.intsToOperand("axes", 1); }

} // namespace

void register_axes_operand(OpsetAdapterRegistry& registry) {
  for (const char* op : {"Squeeze", "Unsqueeze", "ReduceSum"})
    registry.add({op, 13, nullptr, adaptAxesOperand, axesOperandAttributes});
  for (const char* op : {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                         "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"})
    registry.add({op, 18, nullptr, adaptAxesOperand, axesOperandAttributes});
}

} // namespace kvopt::opset
