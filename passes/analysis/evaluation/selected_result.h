// What the functions that select elements share.
#pragma once

#include "ir/movement.h"
#include "passes/analysis/evaluation/evaluation.h"
#include "passes/analysis/evaluation/selection.h"

#include <vector>

namespace kvopt::analysis {

/// One result whose elements are selected, and where operands are looked up.
struct SelectedResult {
  const ir::Value& result;
  const ir::Node& node;
  Evaluation& evaluation;

  const Extents* extents() const { return evaluation.extents(result); }
  const Extents* extentsOf(unsigned operand) const {
    const ir::Value* value = node.operand(operand);
    return value ? evaluation.extents(*value) : nullptr;
  }
  const NumberTensor* numbersOf(unsigned operand) const {
    const ir::Value* value = node.operand(operand);
    return value ? evaluation.numbers(*value) : nullptr;
  }
};

/// An element of an operand as an integer, within bounds that sums do not leave; nullopt where it
/// is not known.
std::optional<int64_t> integerAt(const ir::Value* value, int64_t element, Evaluation& evaluation);

/// The elements of an operand that is broadcast to the result.
ElementSelection broadcastElements(const SelectedResult& selected, unsigned operand);

/// Indices into an axis of `extent` entries, negative ones counted from the end. nullopt where one
/// is not in range.
std::optional<std::vector<int64_t>> entriesOf(const NumberTensor* indices, int64_t extent);

/// The first element of the section that each point of indices names, and how many elements a
/// section has. The last axis of the points has an index for each of the first axes of the data.
struct PointedSections {
  std::vector<int64_t> starts;
  int64_t size = 1;
};
std::optional<PointedSections> sectionsOf(const NumberTensor* points,
                                          llvm::ArrayRef<int64_t> extents);

/// How the result of an operator that only moves data selects, as its definition says.
ElementSelection movedElements(const SelectedResult& selected, const ir::Movement& movement);

} // namespace kvopt::analysis
