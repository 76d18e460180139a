// Selection: results in which each element is one element of an operand, or a fixed number.
#pragma once

#include "ir/node.h"
#include "passes/analysis/evaluation/extents.h"

#include "llvm/ADT/FunctionExtras.h"

#include <vector>

namespace kvopt::analysis {

class Evaluation;

/// Source of one element of a result.
struct SelectedElement {
  static constexpr unsigned filled = ~0U;
  unsigned operand = filled;
  int64_t element = 0; ///< index in the operand
  double fill = 0;     ///< the element itself, if it is not from an operand
};

/// Source of each element of one result, by row-major index.
using ElementSelection = llvm::unique_function<SelectedElement(int64_t element)>;

/// The selection of `result` at the extents and numbers of `evaluation`. Null if its operator
/// computes elements, if an index is out of range, or if the selecting operands are unknown. The
/// definitions of operators that only move data describe the movement; other selecting operators
/// gather, scatter, pad, or choose by a condition.
ElementSelection selectionOf(const ir::Value& result, Evaluation& evaluation);

/// Whether the operator of `node` selects elements, according to its definition or the table of
/// selecting operators. `selectionOf` may still be null.
bool isSelecting(const ir::Node& node);

} // namespace kvopt::analysis
