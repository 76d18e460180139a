// Choice of the SIMD target that vector code runs with.
#pragma once

#include <string>
#include <vector>

namespace kvopt {

/// Highway's names of the targets that this CPU has, the best first.
std::vector<std::string> simdTargets();

/// From now on vector code runs as on a CPU whose best target is `name`, one of simdTargets().
void useSimdTarget(const std::string& name);

} // namespace kvopt
