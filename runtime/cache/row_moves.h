// Rearranging rows in place: which to copy where, in which order.
#pragma once

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <vector>

namespace kvopt::runtime {

struct RowMove {
  /// Stands for one row's worth of memory beside the rows.
  static constexpr int64_t aside = -1;
  int64_t from = 0;
  int64_t to = 0;
  bool operator==(const RowMove&) const = default;
};

/// Copies that, done one after the other, make row i what row `sources[i]` was. No more than one
/// for each row that changes and one for each cycle; at most one row is aside at a time. Requires
/// that the sources are rows.
std::vector<RowMove> rowMoves(llvm::ArrayRef<int64_t> sources);

} // namespace kvopt::runtime
