// Keys and values that are expanded from fewer columns: multi-head latent attention as exporters
// write it.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/tokens/row_function.h"

#include <optional>
#include <variant>
#include <vector>

namespace kvopt::rows {

/// Letters: B batch, S new tokens, H heads, N compressed columns.

/// Columns of keys or values [B,H,S,D] that are products of the compressed rows with a constant
/// matrix, different for each head.
struct ExpandedColumns {
  ir::Value* weights = nullptr; ///< [N,M]
  /// Moves the product of compressed rows and weights, [B,S,M], into the columns, [B,H,S,width].
  analysis::RowFunction moves;
};

/// Columns that are the same for every head.
struct SharedColumns {
  ir::Value* rows = nullptr; ///< [B,1,S,width]
};

struct KeyColumns {
  int64_t first = 0;
  int64_t width = 0;
  std::variant<ExpandedColumns, SharedColumns> made;
};

/// Composition of a site's new keys and values.
struct LatentRows {
  ir::Value* compressed = nullptr; ///< [B,S,N]
  /// Columns in order; at least one part is expanded.
  std::vector<KeyColumns> keys;
  ExpandedColumns values;

  /// Number of columns in a row from which keys and values are computed: N, and those that heads
  /// share.
  int64_t width() const;
};

/// Columns of the keys' cache that are the values.
struct ValueColumns {
  int64_t first = 0;
  int64_t width = 0;
};

/// The columns of a site's new keys that equal its new values, in the same layout; nullopt if there
/// are none, or if something else reads the caches.
std::optional<ValueColumns> findValueColumns(const analysis::AttentionSite& site);

/// The compressed form of the site's caches; otherwise the reason why there is none: they are not
/// functions of fewer columns than they have, or something else reads them.
std::variant<LatentRows, pattern::MatchFailure> findLatentRows(const analysis::AttentionSite& site);

} // namespace kvopt::rows
