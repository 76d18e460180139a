// Removal of values that hold scales.
#include "passes/unrounding/removed_scales.h"

#include "support/diagnostic.h"

namespace kvopt::unrounding {
using namespace ir;

void removeOutputOf(Value& value) {
  Graph& graph = value.graph();
  for (auto slot = static_cast<unsigned>(graph.outputs().size()); slot-- > 0;)
    if (graph.outputs()[slot] == &value)
      graph.removeOutput(slot);
}

llvm::Error checkUnread(const Value& presentScale) {
  if (presentScale.isUnused())
    return llvm::Error::success();
  return invalid("scales of cached rows are {}",
                 presentScale.hasUses()
                     ? "read by " + presentScale.uses().begin()->user().describe()
                     : std::string("an output that is not their cache's"))
      .value(presentScale.name());
}

void RemovedScales::note(Value* scale) {
  if (scale && scale->isGraphInput())
    inputs.insert(scale);
}

llvm::Error RemovedScales::remove() {
  for (Value* input : inputs) {
    if (llvm::Error error = checkUnread(*input))
      return error;
    input->graph().removeInput(*input);
  }
  inputs.clear();
  return llvm::Error::success();
}

} // namespace kvopt::unrounding
