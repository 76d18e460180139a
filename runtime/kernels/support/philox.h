// Philox4x32-10: random bits as a function of a key and a counter (Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace kvopt::kernels {

/// 128 random bits. There is no state: equal counters and keys give equal bits on every machine.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

} // namespace kvopt::kernels
