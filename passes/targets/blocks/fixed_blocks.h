// FixedBlocks: caches in blocks with fixed extents, whose last rows may not be tokens.
#pragma once

#include "passes/targets/blocks/spelled_blocks.h"
#include "passes/targets/support/gapped_keys.h"

namespace kvopt::targets {

/// nullopt if FixedBlocks can write the site; otherwise the reason.
std::optional<pattern::MatchFailure> supportsFixedBlocks(const analysis::AttentionSite& site);

/// The length input holds the number of valid rows in all blocks; masks hide the other rows.
class FixedBlocks : public SpelledBlocks {
public:
  using SpelledBlocks::SpelledBlocks;

protected:
  std::vector<ir::Dim> rowsOfBlocks() override;
  ir::Value& spell(const analysis::AttentionSite& site, pattern::Rewriter& rewriter) override;

  /// Layout of the keys of a site that grows.
  GappedKeys gappedKeys() { return {&length->value(), pastRows}; }

  /// int64 [1]: total number of rows in all blocks; null if no cache is split.
  ir::Value* pastRows = nullptr;
};

} // namespace kvopt::targets
