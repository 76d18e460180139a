// Reading of memory at maximum speed: the bound for everything that reads weights and caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvopt::simd {

/// Reads every byte once, in four interleaved streams, and combines all data into one number, so
/// that the reads are not optimized away. The number depends on the instruction set.
uint64_t streamRead(const std::byte* data, size_t bytes);

/// Highway's name of the SIMD target selected for the running CPU.
std::string_view simdTarget();

} // namespace kvopt::simd
