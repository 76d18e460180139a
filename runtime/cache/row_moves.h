// Order of copies that rearranges rows in place.
#pragma once

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <vector>

namespace kvopt::runtime {

struct RowMove {
  /// Index of a temporary row in addition to the rows.
  static constexpr int64_t aside = -1;
  int64_t from = 0;
  int64_t to = 0;
  bool operator==(const RowMove&) const = default;
};

/// Copies that, in sequence, make row i a copy of the original row `sources[i]`. There is at most
/// one copy for each row that changes and one for each cycle; at most one row is in temporary
/// memory at a time. Requires that the sources are valid rows.
std::vector<RowMove> rowMoves(llvm::ArrayRef<int64_t> sources);

} // namespace kvopt::runtime
