// Hides the rows of blocks that hold no tokens.
#include "passes/targets/blocks/fixed_blocks.h"

#include "passes/targets/primitive/spelled_attention.h"
#include "passes/targets/support/gap_support.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

std::optional<MatchFailure> supportsFixedBlocks(const AttentionSite& site) {
  std::optional<MatchFailure> failure = supportsSpelledBlocks(site);
  return !failure && site.grows() ? gapObstacle(site) : failure;
}

std::vector<Dim> FixedBlocks::rowsOfBlocks() {
  pastRows = &graph.addConstant("past_rows", int64Tensor({*capacity}));
  std::vector<Dim> rows;
  for (int64_t first = 0; first < *capacity; first += size)
    rows.push_back(Dim::fixed(std::min(size, *capacity - first)));
  return rows;
}

Value& FixedBlocks::spell(const AttentionSite& site, Rewriter& rewriter) {
  if (!site.grows())
    return SpelledBlocks::spell(site, rewriter);
  return spellAttention(*site.node, gappedKeys(), rewriter);
}

} // namespace kvopt::targets
