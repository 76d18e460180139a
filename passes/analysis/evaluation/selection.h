// Selection: results whose every element is one element of an operand, or a fixed number.
#pragma once

#include "ir/node.h"
#include "passes/analysis/evaluation/extents.h"

#include "llvm/ADT/FunctionExtras.h"

#include <vector>

namespace kvopt::analysis {

class Evaluation;

/// Where an element of a result comes from.
struct SelectedElement {
  static constexpr unsigned filled = ~0U;
  unsigned operand = filled;
  int64_t element = 0; ///< of the operand
  double fill = 0;     ///< the element itself, without an operand
};

/// Of one result: where its element at a row-major index comes from.
using ElementSelection = llvm::unique_function<SelectedElement(int64_t element)>;

/// How `result` selects its elements, at the extents and numbers of `evaluation`. Null where its
/// operator computes elements, where an index is out of range, and where what it selects by is not
/// known. Operators that only move data say how in their definitions; others that select are those
/// that gather, scatter, pad, and choose by a condition.
ElementSelection selectionOf(const ir::Value& result, Evaluation& evaluation);

/// Whether the operator of `node` selects, by what its definition or the table of selecting
/// operators says. Then `selectionOf` may still be null.
bool isSelecting(const ir::Node& node);

/// The extents of a result of an operator that moves data; nullopt where they are not known.
std::optional<Extents> movedExtents(const ir::Value& result, Evaluation& evaluation);

} // namespace kvopt::analysis
