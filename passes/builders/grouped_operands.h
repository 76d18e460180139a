// Rows of com.microsoft::GroupQueryAttention, separate and rotated.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::builders {

/// Queries, keys and values [B,S,columns].
struct GroupedRows {
  ir::Value* query = nullptr;
  ir::Value* key = nullptr;
  ir::Value* value = nullptr;
};

/// The operands of a GroupQueryAttention whose heads have `width` columns. If the query has all
/// rows packed, they are parts of it.
GroupedRows groupedRows(const ir::Node& node, int64_t width, AttentionBuilder& build);

/// Queries or keys `heads` [B,`count`,S,width] as the node rotates them with do_rotary, by
/// `positions` [B,S] or [1].
ir::Value& rotatedByNode(const ir::Node& node, ir::Value& heads, int64_t count, int64_t width,
                         ir::Value& positions, AttentionBuilder& build);

} // namespace kvopt::builders
