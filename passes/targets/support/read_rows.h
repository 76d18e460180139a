// Number of rows that attention must read from a cache of fixed extents, if its mask provably hides
// the others.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/mask/mask_predicate.h"
#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// int64 [1] or [B]: number of earlier rows P such that attention with S query rows over the C rows
/// of a cache sees only the first P + S. Computed from the model's inputs: from the positions of
/// the query rows, if those of every batch row count up from the same first one, or from a length.
/// The result is C - S, which reads all rows, if they do not, and if rows would be outside the
/// cache. Null if the mask proves nothing, and if padding that sees no key averages over all rows.
/// For sites whose caches are overwritten.
ir::Value* provedEarlierRows(const analysis::AttentionSite& site,
                             builders::AttentionBuilder& build);

/// Whether such a number exists.
bool provesEarlierRows(const analysis::AttentionSite& site);

} // namespace kvopt::targets
