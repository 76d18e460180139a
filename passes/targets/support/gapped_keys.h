// GappedKeys: which keys an attention sees whose past has a fixed extent, of which only the first
// rows are tokens.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// Keys [past_rows + S] of two parts: past_rows rows, of which the first `pastLength` are the
/// earlier tokens and the others a gap that nobody sees, and then the S new ones.
///
///   column j                      is key                        visible
///   j < pastLength                j                             as causality and the window say
///   pastLength <= j < past_rows   none                          never
///   j >= past_rows                pastLength + j - past_rows    as causality and the window say
struct GappedKeys {
  ir::Value* pastLength = nullptr; ///< int64 [1], at most past_rows
  ir::Value* pastRows = nullptr;   ///< int64 [1]
};

/// bool [1,1,S,past_rows+S] or [past_rows+S]: the keys that each row of `query` [B,H,S,D] sees, row
/// i standing behind pastLength + i tokens. `window` 0: none.
ir::Value& gappedKeyMask(const GappedKeys& keys, bool causal, int64_t window, ir::Value& query,
                         builders::AttentionBuilder& build);

/// A mask of pastLength + S columns, or of one for all keys, with a column for every key: those of
/// the gap hold some other column. `columns` is how many columns attention had before it got the
/// gap.
ir::Value& spreadMask(const GappedKeys& keys, ir::Value& mask, const ir::Dim& columns,
                      ir::Value& query, builders::AttentionBuilder& build);

} // namespace kvopt::targets
