// How many threads are worth having.
#pragma once

#include "llvm/ADT/ArrayRef.h"

#include <string>

namespace kvopt::runtime {

/// Physical cores that this process may use, at least 1: the hardware threads of one core count
/// once, those outside the affinity mask do not count, and a CPU quota of the control groups the
/// process is in (rounded up) is the limit.
unsigned usableCores();

/// The same for a process that may run on `cpus`, with /sys and /proc below `root` ("" is the
/// machine's own). What cannot be read limits nothing.
unsigned usableCores(llvm::ArrayRef<unsigned> cpus, const std::string& root);

} // namespace kvopt::runtime
