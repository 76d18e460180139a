// Facts about an attention layer, as JSON and as text.
#pragma once

#include "passes/analysis/cache/site.h"
#include "support/json_fwd.h"

namespace kvopt::driver {

/// Kind of the mask of a raised attention, an ai.kvopt::Sdpa: `causal`, `additive`, `boolean`,
/// `none`.
std::string maskKind(const ir::Node& attention);

/// Kind, heads, widths, layout, axes, causal, window, softcap, scale and mask; unknown facts of an
/// unmatched layer are null.
OrderedJson factsJson(const analysis::AttentionSite& site);

/// Text such as `MHA 12×64`, `GQA 32/4×64`, `MQA 8/1×64`; `4/4×24/16` if values and keys have
/// different widths. Empty if nothing is known.
std::string headsText(const analysis::AttentionSite& site);

/// Text such as `4/2×16`, without the name of the scheme.
std::string headCounts(const analysis::AttentionSite& site);

/// Text such as `[B,4,P,64] axis 2`; empty without a cache.
std::string layoutText(const analysis::AttentionSite& site);

/// Text such as `causal · window 4096 · softcap 50 · scale 0.125`; empty for a layer that was not
/// raised.
std::string attentionText(const analysis::AttentionSite& site);

/// Known properties of the mask: `additive float[B, 1, S, T]: j <= i + P and attention_mask[b, j]`,
/// where row i of S sees key j of T and P is T - S. Empty for a layer that was not raised.
std::string maskText(const analysis::AttentionSite& site);

OrderedJson reasonJson(const pattern::MatchFailure& failure);

/// Ranges such as `L0–L20`, `L0–L20 by 2`, `L0–L4, L6–L10`; `layers` is ascending.
std::string layerRanges(llvm::ArrayRef<unsigned> layers);

} // namespace kvopt::driver
