// Choice of the SIMD target that kernels run with, for tests and benchmarks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvopt::simd {

/// Highway's names of the targets that this CPU has and kernels are compiled for, the best first.
std::vector<std::string> simdTargets();

/// From now on kernels run as on a CPU whose best target is `name`, one of simdTargets(). Not while
/// they run.
void useSimdTarget(std::string_view name);
/// From now on they run with the best that this CPU has.
void useBestSimdTarget();

/// Whether kernels multiply bytes (code_products.h): the CPU does, and the target has vectors of
/// 512 bits.
bool usesByteProducts();

} // namespace kvopt::simd
