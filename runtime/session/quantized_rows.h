// Rows of numbers, quantized for caches of codes.
#pragma once

#include "runtime/session/cache_state.h"

namespace kvopt::runtime {

/// Puts what the caches `exact` hold into `quantized`, in place of all that they hold:
/// as codes and scales where its rows are codes, as the operators that append rows make them. Fails
/// where a cache has no counterpart, or a layout whose rows are not side by side.
llvm::Error seedQuantized(CacheState& quantized, const CacheState& exact);

} // namespace kvopt::runtime
