// Scales to remove from a model whose rows are no longer codes.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Error.h"

namespace kvopt::unrounding {

/// Removes the value from the outputs of its graph.
void removeOutputOf(ir::Value& value);

/// Fails, and names the reader, if a node reads the scales that an attention writes: a model
/// without scales has no such value.
llvm::Error checkUnread(const ir::Value& presentScale);

/// Inputs of one graph that held scales. A file may use one of them for several operands.
class RemovedScales {
public:
  /// Adds the value if it is an input; ignores other values and null.
  void note(ir::Value* scale);
  /// Removes the inputs. Fails, and names the reader, if one of them is still read.
  llvm::Error remove();

private:
  llvm::SmallSetVector<ir::Value*, 16> inputs;
};

} // namespace kvopt::unrounding
