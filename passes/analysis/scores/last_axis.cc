// Reads axes from attributes and operands.
#include "passes/analysis/scores/last_axis.h"

#include "ir/attribute.h"

namespace kvopt::analysis {
using namespace ir;

bool reducesLastAxis(const Node& reduction) {
  if (!reduction.operand(0) || reduction.intAttr("keepdims", 1) != 1)
    return false;
  const TensorType& type = reduction.operand(0)->type();
  llvm::SmallVector<int64_t, 4> axes;
  if (auto written = reduction.intsAttr("axes")) {
    axes.assign(written->begin(), written->end());
  } else if (const Value* operand = reduction.operand(1)) {
    for (const Dim& axis : operand->knownIntegers().value_or(llvm::SmallVector<Dim, 4>()))
      axes.push_back(axis.value().value_or(0));
  }
  if (axes.size() != 1)
    return false;
  return axes[0] == -1 || (type.hasRank() && axes[0] == static_cast<int64_t>(type.rank()) - 1);
}

} // namespace kvopt::analysis
