// What the machine can do at best: the bounds that benchmarks are compared with.
#pragma once

#include <cstddef>

namespace kvopt {

/// Reads every byte, as four streams, with the widest vectors of the CPU. Returns something that
/// depends on all of them.
unsigned long long readAll(const void* data, size_t bytes);

/// Does `rounds` * 1024 vector multiply-adds on registers and returns their number of
/// floating-point operations. `sink` depends on all of them.
double multiplyAdds(size_t rounds, float& sink);

} // namespace kvopt
