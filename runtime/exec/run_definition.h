// Execution of a node by the definition of its operator.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// Computes the used results of the context's node.
llvm::Error runDefinition(void (*definition)(meaning::Call&), KernelContext& context);

} // namespace kvopt::runtime
