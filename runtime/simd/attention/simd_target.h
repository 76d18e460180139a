// Selection of the SIMD target for kernels, for tests and benchmarks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvopt::simd {

/// Highway's names of the targets that this CPU supports and kernels are compiled for, best first.
std::vector<std::string> simdTargets();

/// Makes kernels run as on a CPU whose best target is `name`, one of simdTargets(). Must not be
/// called while they run.
void useSimdTarget(std::string_view name);
/// Makes kernels use the best target of this CPU.
void useBestSimdTarget();

/// Whether kernels multiply bytes (code_products.h): the CPU supports it, and the target has
/// vectors of 512 bits.
bool usesByteProducts();

} // namespace kvopt::simd
