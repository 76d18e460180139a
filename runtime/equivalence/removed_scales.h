// Scales of rows that leave a model in which rows are codes no more.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Error.h"

namespace kvopt::runtime {

/// Takes the value out of the outputs of its graph.
void removeOutputOf(ir::Value& value);

/// Fails, and names the reader, where something reads the scales that an attention writes: a model
/// without scales has no such value.
llvm::Error checkUnread(const ir::Value& presentScale);

/// The inputs of one graph that held scales. A file may give one of them to several operands.
class RemovedScales {
public:
  /// Takes note of the value if it is an input, and does nothing with other values and null.
  void note(ir::Value* scale);
  /// Removes the inputs. Fails, and names the reader, where something still reads one.
  llvm::Error remove();

private:
  llvm::SmallSetVector<ir::Value*, 16> inputs;
};

} // namespace kvopt::runtime
