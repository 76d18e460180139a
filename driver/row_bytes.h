// Size of one row of a cache.
#pragma once

#include "ir/manifest/manifest.h"

#include <optional>

namespace kvopt::driver {

/// Number of bytes of one row of one sequence; nullopt if an extent is not fixed, if elements are
/// not whole bytes, or if the product exceeds 64 bits.
std::optional<int64_t> rowBytes(const ir::ManifestCache& cache);

} // namespace kvopt::driver
