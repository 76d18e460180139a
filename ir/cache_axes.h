// CacheAxes: how kvopt's operators find rows, heads and columns in a cache, by its rank and the
// axis of its sequence.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace kvopt::ir {

/// The axes of a cache of C slots. Rank 4: [C,B,G,D], [B,C,G,D], [B,G,C,D] or [B,G,D,C] for the
/// sequence axes 0 to 3. Rank 3, heads folded into the batch: [B*G,C,D] or [B*G,D,C] for 1 and 2.
struct CacheAxes {
  bool folded = false;
  unsigned batch = 0;
  unsigned head = 0; ///< folded: that of the batch too
  unsigned slot = 0;
  unsigned column = 0;

  /// Columns, not slots, are far apart.
  bool isTransposed() const { return slot > column; }
  /// The order of axes that makes the cache [B,G,C,D], or [B*G,C,D].
  std::array<int64_t, 4> rowOrder() const {
    if (folded)
      return {batch, slot, column, 0};
    return {batch, head, slot, column};
  }
};

inline std::optional<CacheAxes> cacheAxes(unsigned rank, int64_t sequenceAxis) {
  if (rank == 4 && sequenceAxis == 0)
    return CacheAxes{false, 1, 2, 0, 3};
  if (rank == 4 && sequenceAxis == 1)
    return CacheAxes{false, 0, 2, 1, 3};
  if (rank == 4 && sequenceAxis == 2)
    return CacheAxes{false, 0, 1, 2, 3};
  if (rank == 4 && sequenceAxis == 3)
    return CacheAxes{false, 0, 1, 3, 2};
  if (rank == 3 && sequenceAxis == 1)
    return CacheAxes{true, 0, 0, 1, 2};
  if (rank == 3 && sequenceAxis == 2)
    return CacheAxes{true, 0, 0, 2, 1};
  return std::nullopt;
}

} // namespace kvopt::ir
