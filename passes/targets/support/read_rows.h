// How many rows of a cache of fixed extents attention has to read, where its mask proves that it
// hides the others.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/mask/mask_predicate.h"
#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// int64 [1] or [B]: a number of rows P of a cache such that attention over its C rows sees no key
/// behind the first P + S, for S query rows. Computed from what the model is fed: the positions of
/// the query rows, where those of every batch row count on from the same first one, or a length. C
/// - S, so that all rows are read, where they do not, and where rows would lie outside of the
/// cache. Null where the mask proves nothing, and where padding that sees no key averages over all
/// of them. For sites whose caches are overwritten.
ir::Value* provedEarlierRows(const analysis::AttentionSite& site,
                             builders::AttentionBuilder& build);

/// Whether there is such a number.
bool provesEarlierRows(const analysis::AttentionSite& site);

} // namespace kvopt::targets
