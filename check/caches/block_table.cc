// The blocks of a step.
#include "check/caches/block_table.h"

namespace kvopt::check {

std::optional<BlockTable> BlockTable::of(const ir::Manifest& manifest, const Step& step,
                                         std::string& failure) {
  BlockTable table;
  if (manifest.blockSize <= 0) {
    failure = "the number of rows in a block is unknown";
    return std::nullopt;
  }
  table.rows = step.batch;
  table.size = manifest.blockSize;
  table.used = (step.total() + table.size - 1) / table.size;
  table.listed = table.used + 1;
  for (const ir::ManifestLength& length : manifest.lengths)
    if (length.feed == ir::LengthFeed::BlockTable && length.shape.size() == 2)
      if (const auto* fixed = std::get_if<int64_t>(&length.shape[1]))
        table.listed = *fixed;
  if (table.used > table.listed) {
    failure = "the table of blocks has no room for all tokens";
    return std::nullopt;
  }
  return table;
}

int64_t BlockTable::block(int64_t row, int64_t index) const {
  if (index >= used)
    return blocks() - 1;
  return 1 + (used - 1 - index) * rows + (row + index) % rows;
}

} // namespace kvopt::check
