// What one row of a cache takes.
#pragma once

#include "ir/manifest/manifest.h"

#include <optional>

namespace kvopt::driver {

/// Bytes of one row of one sequence; nullopt where an extent is not fixed, elements are no whole
/// bytes, or the product exceeds 64 bits.
std::optional<int64_t> rowBytes(const ir::ManifestCache& cache);

} // namespace kvopt::driver
