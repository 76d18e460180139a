// Rows of numbers, quantized for caches of codes.
#pragma once

#include "runtime/session/cache_state.h"

namespace kvopt::runtime {

/// Replaces all contents of `quantized` by those of the caches `exact`. Rows are quantized to codes
/// and scales where `quantized` has codes, like in the operators that append rows. Fails if a cache
/// has no counterpart, or if rows in its layout are not contiguous.
llvm::Error seedQuantized(CacheState& quantized, const CacheState& exact);

} // namespace kvopt::runtime
