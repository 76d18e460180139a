// Replacement of ai.kvopt's attention by decomposed attention.
#include "passes/targets/blocks/spelled_blocks.h"

#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/primitive/spelled_attention.h"
#include "passes/targets/support/kvopt_domain.h"
#include "support/diagnostic.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

std::optional<MatchFailure> supportsSpelledBlocks(const AttentionSite& site) {
  if (site.failure)
    return site.failure;
  if (std::optional<MatchFailure> failure = doesNotGrow(site))
    return failure;
  if (std::optional<MatchFailure> failure = spellingObstacle(*site.node))
    return failure;
  return blocksObstacle(site);
}

llvm::Error SpelledBlocks::attend(AttentionSite& site) {
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), ruleName, journal);
  Value& spelled = spell(site, rewriter);
  rewriter.recordSources(*spelled.producer(), {&sdpa});
  if (std::optional<MatchFailure> failure = rewriter.replace(sdpa.result(), spelled))
    return unsupported("site {}: {}", site.id(), failure->str());
  site.node = spelled.producer();
  return llvm::Error::success();
}

Value& SpelledBlocks::spell(const AttentionSite& site, Rewriter& rewriter) {
  return spellAttention(*site.node, rewriter);
}

void SpelledBlocks::finishModel(int64_t irVersion) { dropKvoptDomain(model, irVersion); }

} // namespace kvopt::targets
