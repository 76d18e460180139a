// Caches of which attention reads something that is computed of each row.
#pragma once

#include "passes/analysis/tokens/row_function.h"

#include "llvm/ADT/MapVector.h"

#include <optional>
#include <vector>

namespace kvopt::rows {

/// What attention reads of a cache, or what that is moved from.
struct AttendedRows {
  ir::Value* value = nullptr;
  analysis::RowFunction function; ///< makes `value` of the cache's rows
  unsigned axis = 0;              ///< the axis of `value` that the rows are along
  bool areKeys = false;
};

/// A cache that attention reads through functions of single rows only.
struct AttendedCache {
  ir::Node* join = nullptr;   ///< Concat(past, new rows)
  unsigned axis = 0;          ///< the axis of the cache that rows are joined along
  ir::Value* input = nullptr; ///< the past, or what the past is converted from
  unsigned output = 0;        ///< the slot of the output that the joined rows come out in
  std::vector<AttendedRows> reads;
  /// Set where the cache can hold what attention reads in its own form, with the function's results
  /// in the order of its axes: axis i of the cache is axis order[i] of what is read. An empty list
  /// stands for equal orders.
  std::optional<std::vector<int64_t>> order;

  ir::Value& past() const { return *join->operand(0); }
  ir::Value& fresh() const { return *join->operand(1); }
};

/// Operands of attention, each value once, by the Concat that joins the cache that they are made
/// of.
using OperandsByJoin = llvm::MapVector<ir::Node*, llvm::SmallVector<const ir::Use*, 2>>;

/// Operands of several caches, or of none, are left out.
OperandsByJoin attentionOperandsByJoin(ir::Graph& graph);

/// The cache that `join` makes and these operands read; nullopt where nothing is computed of it, or
/// where it is read in any other way than through functions of rows. Edits of the graph invalidate
/// the result.
std::optional<AttendedCache> findAttendedCache(ir::Node& join,
                                               llvm::ArrayRef<const ir::Use*> operands);

} // namespace kvopt::rows
