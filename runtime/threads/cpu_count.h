// Useful number of threads.
#pragma once

#include "llvm/ADT/ArrayRef.h"

#include <string>

namespace kvopt::runtime {

/// Number of physical cores that this process may use, at least 1. Hardware threads of the same
/// core count once, those outside the affinity mask do not count, and the CPU quota of the
/// process's control groups (rounded up) is the limit.
unsigned usableCores();

/// The same for a process that may run on `cpus`, with /sys and /proc below `root` ("" for the real
/// ones). Files that cannot be read impose no limit.
unsigned usableCores(llvm::ArrayRef<unsigned> cpus, const std::string& root);

} // namespace kvopt::runtime
