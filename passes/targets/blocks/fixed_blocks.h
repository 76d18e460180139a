// FixedBlocks: caches in blocks whose extents are fixed, so that rows at their end may be no
// tokens.
#pragma once

#include "passes/targets/blocks/spelled_blocks.h"
#include "passes/targets/support/gapped_keys.h"

namespace kvopt::targets {

/// nullopt if FixedBlocks can write the site, otherwise why not.
std::optional<pattern::MatchFailure> supportsFixedBlocks(const analysis::AttentionSite& site);

/// The length input says how many rows of all blocks are tokens, and masks hide the others.
class FixedBlocks : public SpelledBlocks {
public:
  using SpelledBlocks::SpelledBlocks;

protected:
  std::vector<ir::Dim> rowsOfBlocks() override;
  ir::Value& spell(const analysis::AttentionSite& site, pattern::Rewriter& rewriter) override;

  /// How keys lie of a site that grows.
  GappedKeys gappedKeys() { return {&length->value(), pastRows}; }

  /// int64 [1]: the rows of all blocks; null where no cache is split.
  ir::Value* pastRows = nullptr;
};

} // namespace kvopt::targets
