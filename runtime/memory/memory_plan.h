// Memory planning: where in one arena each intermediate tensor lives.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace kvopt::runtime {

/// A block that is needed from execution step `firstUse` to `lastUse`, both inclusive. All tensors
/// that share one storage (views of each other) are one interval.
struct StorageInterval {
  int64_t bytes = 0;
  int64_t firstUse = 0;
  int64_t lastUse = 0;
};

struct MemoryPlan {
  /// One per interval, in bytes from the arena's start, multiples of 64.
  std::vector<int64_t> offsets;
  /// The arena's size.
  int64_t peak = 0;
  /// The most bytes (rounded up to 64 a block) that are needed at one instant: no plan is smaller.
  int64_t lowerBound = 0;
};

/// Places blocks, largest first, each into the smallest gap it fits between those it shares time
/// with. Blocks that are needed at the same time never overlap. Requires bytes >= 0 and
/// firstUse <= lastUse. Fails when the sizes overflow int64_t.
llvm::Expected<MemoryPlan> planMemory(llvm::ArrayRef<StorageInterval> intervals);

} // namespace kvopt::runtime
