// Caches whose rows attention reads through a function of each row.
#pragma once

#include "passes/analysis/tokens/row_function.h"

#include "llvm/ADT/MapVector.h"

#include <optional>
#include <vector>

namespace kvopt::rows {

/// A value that attention reads from a cache, or from which its operand is moved.
struct AttendedRows {
  ir::Value* value = nullptr;
  analysis::RowFunction function; ///< computes `value` from the cache's rows
  unsigned axis = 0;              ///< axis of the rows in `value`
  bool areKeys = false;
};

/// A cache that attention reads through functions of single rows only.
struct AttendedCache {
  ir::Node* join = nullptr;   ///< Concat(past, new rows)
  unsigned axis = 0;          ///< axis of the cache along which rows are joined
  ir::Value* input = nullptr; ///< the past, or the value that it is converted from
  unsigned output = 0;        ///< index of the output that receives the joined rows
  std::vector<AttendedRows> reads;
  /// Set if the cache can hold the rows that attention reads in the cache's own form, with the
  /// function's results in the order of its axes: axis i of the cache is axis order[i] of the rows.
  /// An empty list means equal orders.
  std::optional<std::vector<int64_t>> order;

  ir::Value& past() const { return *join->operand(0); }
  ir::Value& fresh() const { return *join->operand(1); }
};

/// Operands of attention, each value once, keyed by the Concat that joins their cache.
using OperandsByJoin = llvm::MapVector<ir::Node*, llvm::SmallVector<const ir::Use*, 2>>;

/// Operands from several caches, or from none, are left out.
OperandsByJoin attentionOperandsByJoin(ir::Graph& graph);

/// The cache that `join` produces and these operands read; nullopt if the rows are read unchanged,
/// or otherwise than through functions of rows. Edits of the graph invalidate the result.
std::optional<AttendedCache> findAttendedCache(ir::Node& join,
                                               llvm::ArrayRef<const ir::Use*> operands);

} // namespace kvopt::rows
