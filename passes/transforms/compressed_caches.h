// The work of compress-caches, for passes that include it.
#pragma once

#include "passes/pass.h"

namespace kvopt::transforms {

/// Replaces keys and values that are expanded from rows with fewer columns by caches of those rows,
/// where that saves bytes. Sites must be found again afterwards. Other attention does not change.
llvm::Error compressCaches(ir::Model& model, passes::PassContext& context);

} // namespace kvopt::transforms
