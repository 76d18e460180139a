// Comparison of a value with predicted rows, at one point of evaluation.
#pragma once

#include "passes/rows/respelled_rows.h"

namespace kvopt::rows {

/// Predicted rows of a value.
struct SaidRows {
  RespelledRows rows;
  /// Index of each batch row's first new row, [1] or [B]; null: after all rows of the cache, or at
  /// `rows.place`. Rows after the new ones are filled with a number.
  const ir::Value* pastLength = nullptr;
};

/// Whether `value` has the extents and elements that `said` predicts, at the point of `evaluation`.
/// If there are many elements, those of every row are compared in the first and the last head and
/// column. If the input with the places of written rows names places outside the cache, the answer
/// is true, because the contents are unspecified then.
bool areRows(const ir::Value& value, const SaidRows& said, analysis::Evaluation& evaluation);

/// The rows that the operator of `joined` joins, if it joins an input with new rows: Concat of two
/// operands or ai.kvopt::AppendRows. nullopt for other values. areRows() checks whether the first
/// operand has the rows of the input, in its layout.
std::optional<SaidRows> joinedRows(const ir::Value& joined, analysis::Evaluation& evaluation);

/// Number of rows of one value that another keeps.
struct KeptRows {
  int64_t count = 0;
  bool isAll = false;
};

/// Number of rows of `joined`, which is `rows`, that `value` keeps, if these are the last ones and
/// both have the same layout; nullopt otherwise.
std::optional<KeptRows> keptRows(const ir::Value& value, const ir::Value& joined,
                                 const RespelledRows& rows, analysis::Evaluation& evaluation);

} // namespace kvopt::rows
