// BlockTable: the blocks of pools that hold the rows of each batch row in a step.
#pragma once

#include "check/caches/step.h"
#include "ir/manifest/manifest.h"

#include <optional>
#include <string>

namespace kvopt::check {

/// Blocks of a step's pools. Those of one batch row are neither in order nor next to each other.
/// The first and the last block belong to no batch row: other sequences could have them.
class BlockTable {
public:
  /// The table that a model with this manifest is fed; nullopt, with `failure`, if it has no room
  /// for the tokens of the step.
  static std::optional<BlockTable> of(const ir::Manifest& manifest, const Step& step,
                                      std::string& failure);

  int64_t batch() const { return rows; }
  /// Number of blocks that the table lists for each batch row.
  int64_t columns() const { return listed; }
  int64_t blockSize() const { return size; }
  /// Number of blocks of a pool.
  int64_t blocks() const { return rows * used + 2; }
  /// Entry of the table. Entries beyond the tokens of the step name the last block.
  int64_t block(int64_t row, int64_t index) const;
  /// Place among all rows of a pool at which a token of a batch row is.
  int64_t slot(int64_t row, int64_t token) const {
    return block(row, token / size) * size + token % size;
  }
  /// Whether the block belongs to no batch row.
  bool isForeign(int64_t block) const { return block == 0 || block == blocks() - 1; }

private:
  int64_t rows = 1;
  int64_t used = 0; ///< blocks with tokens of each batch row, the new ones included
  int64_t listed = 0;
  int64_t size = 1;
};

} // namespace kvopt::check
