// AffineNumbers: the numbers of a graph that are piecewise affine in the step's extents.
#pragma once

#include "passes/analysis/evaluation/breakpoints.h"
#include "passes/analysis/evaluation/number_bounds.h"

#include <set>

namespace kvopt::analysis {

/// Walks the operators that compute numbers. Each operator is affine, or affine between
/// breakpoints, which are collected, or ends the argument.
class AffineNumbers {
public:
  explicit AffineNumbers(Evaluation& at) : evaluation(at) {}

  /// Stops the walk at `value`: its numbers are assumed arbitrary.
  void endAt(const ir::Value& value) { walked[&value] = NumberBounds(); }
  /// Bounds of the numbers of a value that is not data.
  NumberBounds walk(const ir::Value& value);
  /// Walks numbers that an operator chooses by, zero or not.
  void chooseBy(const ir::Node& node, const ir::Value& condition);
  /// Walks indices, which may count from the end.
  void indexBy(const ir::Node& node, const ir::Value& indices);

  void breakAt(const ir::Node* node, std::string reason) {
    if (!broken)
      broken = ArgumentBreak{node, std::move(reason)};
  }
  const std::optional<ArgumentBreak>& ended() const { return broken; }
  /// Records an operator that may not be affine between breakpoints but chooses nothing by size.
  /// The walk continues.
  void gapAt(const ir::Node* node, std::string reason) {
    if (!firstGap)
      firstGap = ArgumentBreak{node, std::move(reason)};
  }
  const std::optional<ArgumentBreak>& gap() const { return firstGap; }
  /// Whether a number is computed from elements of inputs, and not of extents alone.
  bool dependsOnInputs(const ir::Value& value);
  llvm::ArrayRef<Breakpoint> breakpoints() const { return found; }
  void add(Breakpoint breakpoint) { found.push_back(std::move(breakpoint)); }
  Evaluation& at() { return evaluation; }
  /// Numbers of rows at which operators may change their results, also on sides that evaluation did
  /// not reach.
  const std::set<int64_t>& namedRows() const { return rowsNamed; }
  void nameRows(int64_t rows) { rowsNamed.insert(rows); }

private:
  using Operands = llvm::ArrayRef<NumberBounds>;
  NumberBounds compute(const ir::Value& value);
  std::optional<NumberBounds> known(const ir::Value& value);
  NumberBounds boundsOf(const ir::Value& value);
  NumberBounds apply(const ir::Value& value, Operands operands);
  NumberBounds multiply(const ir::Node& node, Operands operands);
  NumberBounds divide(const ir::Node& node, Operands operands);
  /// Records constants that lengths are compared with.
  void nameConstants(Operands operands);
  NumberBounds choose(const ir::Node& node, Operands operands);
  NumberBounds clip(const ir::Node& node, Operands operands);
  NumberBounds compare(const ir::Node& node, Operands operands);
  NumberBounds combine(const ir::Node& node, Operands operands);
  NumberBounds range(const ir::Node& node, Operands operands);
  NumberBounds convert(const ir::Value& value, const NumberBounds& data);
  /// Adds the breakpoints of a boolean result.
  void addOutcomes(const ir::Node& node, const ir::Value& truth, bool mayBeFalse, bool mayBeTrue);

  Evaluation& evaluation;
  llvm::DenseMap<const ir::Value*, NumberBounds> walked;
  llvm::DenseMap<const ir::Value*, bool> ofInputs;
  std::vector<Breakpoint> found;
  std::set<int64_t> rowsNamed;
  llvm::DenseSet<const ir::Value*> decided; ///< booleans with breakpoints
  std::optional<ArgumentBreak> broken, firstGap;
  unsigned depth = 0;
};

} // namespace kvopt::analysis
