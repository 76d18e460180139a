// What is said of an attention site: its facts as JSON and as words.
#pragma once

#include "passes/analysis/cache/site.h"
#include "support/json.h"

namespace kvopt::driver {

/// `causal`, `additive`, `boolean`, `none`: the mask of a raised attention, an ai.kvopt::Sdpa.
std::string maskKind(const ir::Node& attention);

/// Kind, heads, widths, layout, axes, causal, window, softcap, scale and mask; what is not known of
/// a missed site is null.
OrderedJson factsJson(const analysis::AttentionSite& site);

/// `MHA 12×64`, `GQA 32/4×64`, `MQA 8/1×64`; `4/4×24/16` where values are of another width than
/// keys. Empty if nothing is known.
std::string headsText(const analysis::AttentionSite& site);

/// `4/2×16`, without the name of the scheme.
std::string headCounts(const analysis::AttentionSite& site);

/// `[B,4,P,64] axis 2`; empty without a cache.
std::string layoutText(const analysis::AttentionSite& site);

/// `causal · window 4096 · softcap 50 · scale 0.125`; empty for a site that was not raised.
std::string attentionText(const analysis::AttentionSite& site);

/// What is known of the mask: `additive float[B, 1, S, T]: j <= i + P and attention_mask[b, j]`,
/// where row i of S sees key j of T and P is T - S. Empty for a site that was not raised.
std::string maskText(const analysis::AttentionSite& site);

OrderedJson reasonJson(const pattern::MatchFailure& failure);

/// `L0–L20`, `L0–L20 by 2`, `L0–L4, L6–L10`; `layers` ascends.
std::string layerRanges(llvm::ArrayRef<unsigned> layers);

} // namespace kvopt::driver
