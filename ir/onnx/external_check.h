// Whether external data that a model names is there, and is what it says.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// Checks the external data of every tensor of the file that the model was read from, without
/// reading any of it: its location leads to a regular file beneath the model's folder, its range
/// has the tensor's size and lies in the file, and ranges of two tensors are disjoint or the same.
llvm::Error checkExternalData(const Model& model);

} // namespace kvopt::ir
