// Sites that become rings, and the reasons for the others.
#include "passes/targets/kvopt/window_sites.h"

#include "passes/targets/kvopt/kvopt_support.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

bool ringChangesPadding(const AttentionSite& site) {
  return ringSlots(site) != 0 && site.mask && !site.mask->isExact && !site.mask->everyRowSeesAKey;
}

MatchFailure noRing(const AttentionSite& site) {
  if (site.update == CacheUpdate::Grows && site.window() != 0)
    return {
        ReasonCode::TargetLacksFeature, site.key->past->name().str(),
        "keys and values appended to caches that no other layer reads, with the same number of "
        "rows for each batch row",
        "caches that are shared, updated in branches, or of a different length per batch row",
        "--padding none, if batch rows are never padded; --to kvopt keeps all rows in one buffer"};
  return {ReasonCode::NoWindow, site.key->past->name().str(),
          "attention that provably reads the last rows of its cache only",
          site.mask ? site.mask->text : "a mask that was not analyzed",
          "--to kvopt keeps all rows in one buffer"};
}

} // namespace kvopt::targets
