// Which token ids a graph can look up in its tables.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kvopt::runtime {

/// How many ids, from 0 on, the tables that an input of token ids indexes have entries for. Models
/// of several codebooks may have one table for each of them, or one in which they follow one
/// another, so that an offset is added to the ids of each.
struct TokenIds {
  /// One number for each index of `axis`, or one for all elements.
  std::vector<int64_t> counts;
  /// The axis of the input that counts codebooks.
  std::optional<unsigned> axis;
  /// How many rows of the input belong to each batch row: more than one where the graph splits its
  /// first axis into batch rows and codebooks.
  int64_t rowsPerBatch = 1;

  /// The most ids that any element may be one of; 0 where no table is known.
  int64_t most() const;
  /// The same for the element at an index.
  int64_t countAt(llvm::ArrayRef<int64_t> index) const;
};

/// Follows the ids through movements and arithmetic with constants to the tables.
TokenIds tokenIdsOf(const ir::Value& input);

} // namespace kvopt::runtime
