// Refuses attention that would otherwise be treated as attention without a cache.
#include "passes/analysis/evaluation/unseen_caches.h"

#include "passes/analysis/cache/cache_trace.h"
#include "passes/analysis/evaluation/cached_rows.h"
#include "passes/analysis/evaluation/step_evaluations.h"
#include "support/format.h"

#include <memory>

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

void refuseUnseenCaches(const Graph& graph, const InterfaceFacts& facts, SiteList& sites) {
  std::unique_ptr<StepEvaluations> evaluations;
  for (AttentionSite& site : sites) {
    if (!site.isMatched() || site.hasCache() || site.node->graph().parentNode())
      continue;
    if (!evaluations)
      evaluations = std::make_unique<StepEvaluations>(graph, facts);
    for (unsigned operand : {1u, 2u}) {
      const Value& rows = *site.node->operand(operand);
      const Value* past =
          evaluations->count() != 0 ? joinedPast(rows, evaluations->at(0)) : nullptr;
      if (past && !site.failure)
        site.failure = failureAt(
            ReasonCode::CacheTransformed, rows, "keys and values as stored in the cache",
            formatted("values computed from rows of '{}' and from new rows", past->name().str()));
    }
  }
}

} // namespace kvopt::analysis
