// Rows of a cache in the form that kvopt's in-place operators take them.
#pragma once

#include "ir/cache_layout.h"
#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::targets {

/// The layout as kvopt's in-place operators are told it, if they can find its rows; `transposable`
/// says whether columns, not rows, may be far apart.
std::optional<ir::CacheLayout> inPlaceLayout(const ir::CacheLayout& layout, bool transposable);

/// The layout of a cache of which heads and width share an axis, with an axis for each: BSHD for
/// BS(HD), of which it is a Reshape. nullopt for other layouts.
std::optional<ir::CacheLayout> unflattened(const ir::CacheLayout& layout);

/// The new rows as [B,G,S,D]. `like` is an attention's query [B,H,S,·]; `groups` and `width` are G
/// and D, needed (and fixed) where the layout folds heads into the batch or into the width.
ir::Value& canonicalRows(ir::Value& fresh, const ir::CacheLayout& layout, ir::Value& like,
                         const ir::Dim& groups, const ir::Dim& width, pattern::Rewriter& rewriter);

/// The axes of a value in another order; a transposition before it is taken into account.
ir::Value& transposed(ir::Value& value, llvm::ArrayRef<int64_t> order, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
