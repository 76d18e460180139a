// The work of split-caches, also for passes that test whether it enables others.
#pragma once

#include "passes/pass.h"

namespace kvopt::transforms {

/// Cuts a cache that holds several caches into one cache for each, if recovered attention reads
/// parts of it. Fails if shapes cannot be inferred afterwards.
llvm::Error cutCaches(ir::Model& model, passes::PassContext& context);

} // namespace kvopt::transforms
