// Best performance of the machine: the bounds with which benchmarks are compared.
#pragma once

#include <cstddef>

namespace kvopt {

/// Reads every byte, in four streams, with the widest vectors of the CPU. Returns a number that
/// depends on all of them.
unsigned long long readAll(const void* data, size_t bytes);

/// Executes `rounds` * 1024 vector multiply-adds in registers and returns their number of
/// floating-point operations. `sink` depends on all of them.
double multiplyAdds(size_t rounds, float& sink);

} // namespace kvopt
