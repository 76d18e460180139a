// Checks of external data without reading it.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// Checks the external data of every tensor of the file from which the model was read, without
/// reading it: its location is a regular file beneath the model's folder, its range has the
/// tensor's size and is within the file, and the ranges of two tensors are disjoint or equal.
llvm::Error checkExternalData(const Model& model);

} // namespace kvopt::ir
