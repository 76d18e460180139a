// What compress-caches does, for passes that come with it.
#pragma once

#include "passes/pass.h"

namespace kvopt::transforms {

/// Replaces keys and values that are expanded from rows of fewer columns by caches of those rows,
/// where that saves bytes. Sites have to be found again then. Other attention stays as it is.
llvm::Error compressCaches(ir::Model& model, passes::PassContext& context);

} // namespace kvopt::transforms
