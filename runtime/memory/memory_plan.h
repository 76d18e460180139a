// Memory planning: offsets of intermediate tensors in one arena.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace kvopt::runtime {

/// A block that is in use from execution step `firstUse` to `lastUse`, inclusive. All tensors that
/// share storage (views of each other) are one interval.
struct StorageInterval {
  int64_t bytes = 0;
  int64_t firstUse = 0;
  int64_t lastUse = 0;
};

struct MemoryPlan {
  /// For each interval, its offset in bytes; a multiple of 64.
  std::vector<int64_t> offsets;
  /// Size of the arena.
  int64_t peak = 0;
  /// Maximum number of bytes in use at the same time (rounded up to 64 per block), which is a lower
  /// bound for every plan.
  int64_t lowerBound = 0;
};

/// Places blocks, largest first, each in the smallest sufficient gap between blocks with
/// overlapping lifetimes. Blocks that are in use at the same time never overlap. Requires bytes >=
/// 0 and firstUse <= lastUse. Fails if sizes overflow int64_t.
llvm::Expected<MemoryPlan> planMemory(llvm::ArrayRef<StorageInterval> intervals);

} // namespace kvopt::runtime
