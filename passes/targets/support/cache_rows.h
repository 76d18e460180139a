// Rows of a cache in the form that kvopt's in-place operators take.
#pragma once

#include "ir/cache_layout.h"
#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::targets {

/// Layout attribute of kvopt's in-place operators for this layout; nullopt if they cannot find its
/// rows. `transposable` says whether columns, instead of rows, may be far apart.
std::optional<ir::CacheLayout> inPlaceLayout(const ir::CacheLayout& layout, bool transposable);

/// Layout of a cache whose heads and width share an axis, with a separate axis for each: BSHD for
/// BS(HD), which is a Reshape of it. nullopt for other layouts.
std::optional<ir::CacheLayout> unflattened(const ir::CacheLayout& layout);

/// The new rows as [B,G,S,D]. `like` is an attention's query [B,H,S,·]. `groups` and `width` are G
/// and D; they must be fixed if the layout folds heads into the batch or into the width.
ir::Value& canonicalRows(ir::Value& fresh, const ir::CacheLayout& layout, ir::Value& like,
                         const ir::Dim& groups, const ir::Dim& width, pattern::Rewriter& rewriter);

/// The value with its axes in another order; combined with a transposition that produces it.
ir::Value& transposed(ir::Value& value, llvm::ArrayRef<int64_t> order, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
