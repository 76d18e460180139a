// Shared parts of the functions that select elements.
#pragma once

#include "ir/movement.h"
#include "passes/analysis/evaluation/evaluation.h"
#include "passes/analysis/evaluation/selection.h"

#include <vector>

namespace kvopt::analysis {

/// One result whose elements are selected, and the evaluation of its operands.
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

/// An element of an operand as an integer, small enough for sums not to overflow; nullopt if it is
/// unknown.
std::optional<int64_t> integerAt(const ir::Value* value, int64_t element, Evaluation& evaluation);

/// Selection of an operand that is broadcast to the result.
ElementSelection broadcastElements(const SelectedResult& selected, unsigned operand);

/// Indices into an axis of `extent` entries, where negative ones count from the end. nullopt if one
/// is out of range.
std::optional<std::vector<int64_t>> entriesOf(const NumberTensor* indices, int64_t extent);

/// The first element of the section that each point of indices names, and the number of elements in
/// a section. The last axis of the points has one index for each of the first axes of the data.
struct PointedSections {
  std::vector<int64_t> starts;
  int64_t size = 1;
};
std::optional<PointedSections> sectionsOf(const NumberTensor* points,
                                          llvm::ArrayRef<int64_t> extents);

/// Selection of the result of an operator that only moves data, according to its definition.
ElementSelection movedElements(const SelectedResult& selected, const ir::Movement& movement);

} // namespace kvopt::analysis
