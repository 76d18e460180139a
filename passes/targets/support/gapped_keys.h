// GappedKeys: visibility of keys for a past with a fixed extent, whose first rows are tokens and
// whose others are unused.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// Keys [past_rows + S] in two parts: past_rows rows, and then the S new rows. The first
/// `pastLength` of the past_rows rows are earlier tokens; the others are a gap, which is always
/// hidden.
///
///   column j                      is key                        visible
///   j < pastLength                j                             as causality and the window say
///   pastLength <= j < past_rows   none                          never
///   j >= past_rows                pastLength + j - past_rows    as causality and the window say
struct GappedKeys {
  ir::Value* pastLength = nullptr; ///< int64 [1], at most past_rows
  ir::Value* pastRows = nullptr;   ///< int64 [1]
};

/// bool [1,1,S,past_rows+S] or [past_rows+S]: the keys that each row of `query` [B,H,S,D] sees. Row
/// i has the position pastLength + i. `window` 0: no window.
ir::Value& gappedKeyMask(const GappedKeys& keys, bool causal, int64_t window, ir::Value& query,
                         builders::AttentionBuilder& build);

/// Spreads a mask of pastLength + S columns, or of one column for all keys, to one column per key.
/// Columns of the gap repeat some other column. `columns` is the number of columns that attention
/// had before the gap was added.
ir::Value& spreadMask(const GappedKeys& keys, ir::Value& mask, const ir::Dim& columns,
                      ir::Value& query, builders::AttentionBuilder& build);

} // namespace kvopt::targets
