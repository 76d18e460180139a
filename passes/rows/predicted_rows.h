// Comparing a value with rows that it is said to be, at one point of evaluation.
#pragma once

#include "passes/rows/respelled_rows.h"

namespace kvopt::rows {

/// Rows as a value is said to have them.
struct SaidRows {
  RespelledRows rows;
  /// Where each batch row's new rows begin, [1] or [B]; null: after all rows of the cache, or at
  /// `rows.place`. Rows past the new ones are filled with a number.
  const ir::Value* pastLength = nullptr;
};

/// Whether `value` has the extents and elements that `said` says, at the point of `evaluation`. Of
/// many elements, those of every row are compared in the first and the last head and column. Where
/// the input that says where rows are written names places outside of the cache, nothing is said,
/// and the answer is true.
bool areRows(const ir::Value& value, const SaidRows& said, analysis::Evaluation& evaluation);

/// What the operator that makes `joined` says that it joins, if it joins an input with new rows:
/// Concat of two operands or ai.kvopt::AppendRows. nullopt for other values. Whether the first
/// operand has the rows of the input, in its layout, is left to areRows().
std::optional<SaidRows> joinedRows(const ir::Value& joined, analysis::Evaluation& evaluation);

/// How many rows of another value one has.
struct KeptRows {
  int64_t count = 0;
  bool isAll = false;
};

/// How many of the rows of `joined`, which is `rows`, the value has, if those are the last ones and
/// both have the same layout; nullopt otherwise.
std::optional<KeptRows> keptRows(const ir::Value& value, const ir::Value& joined,
                                 const RespelledRows& rows, analysis::Evaluation& evaluation);

} // namespace kvopt::rows
