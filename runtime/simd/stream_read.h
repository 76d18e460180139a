// Reading memory as fast as it comes: the yardstick of whatever has to read weights and caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvopt::simd {

/// Reads every byte once, in four interleaved streams, and folds what it read into one number, so
/// that the reading cannot be left out. The number depends on the instruction set.
uint64_t streamRead(const std::byte* data, size_t bytes);

/// The name of the SIMD target that was chosen for the running CPU, as Highway calls it.
std::string_view simdTarget();

} // namespace kvopt::simd
