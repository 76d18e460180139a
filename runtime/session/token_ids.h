// Token ids for which a graph's tables have entries.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kvopt::runtime {

/// Numbers of ids, from 0 on, for which the tables of an input of token ids have entries. Models
/// with several codebooks may have one table for each, or a common table, in which case an offset
/// is added to the ids of each codebook.
struct TokenIds {
  /// One number for each index of `axis`, or one for all elements.
  std::vector<int64_t> counts;
  /// Axis of the input that counts codebooks.
  std::optional<unsigned> axis;
  /// Number of rows of the input for each batch row: more than one if the graph splits its first
  /// axis into batch rows and codebooks.
  int64_t rowsPerBatch = 1;
  /// Whether the graph may replace an id by another number before a table is read.
  bool areReplaced = false;

  /// Maximum number of ids for any element; 0 if no table is known.
  int64_t most() const;
  /// Number of ids for the element at an index.
  int64_t countAt(llvm::ArrayRef<int64_t> index) const;
};

/// Traces the ids through movements and arithmetic with constants to the tables.
TokenIds tokenIdsOf(const ir::Value& input);

} // namespace kvopt::runtime
