// What split-caches does, also for passes that try what it makes possible.
#pragma once

#include "passes/pass.h"

namespace kvopt::transforms {

/// Cuts caches that hold several in one into one for each, where attention has been raised that
/// reads parts of them. Fails where shapes cannot be inferred afterwards.
llvm::Error cutCaches(ir::Model& model, passes::PassContext& context);

} // namespace kvopt::transforms
