// Queries, keys and values that are parts of one product.
#pragma once

#include "ir/value.h"

namespace kvopt::targets {

/// The value whose columns are those of `query`, then of `key`, then of `value`, all [B,S,columns];
/// null if there is none. GroupQueryAttention takes it in the place of the three.
ir::Value* packedRows(const ir::Value& query, const ir::Value& key, const ir::Value& value);

} // namespace kvopt::targets
