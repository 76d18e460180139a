// Numbers that an export computed from its extents.
#pragma once

#include "passes/extents/extent_symbols.h"

namespace kvopt::extents {

/// Computes numbers that represent extents: constants that count tokens, keys, or batch rows, and
/// values computed from constants only.
class FreedNumbers {
public:
  FreedNumbers(ir::Graph& freedGraph, ExtentSymbols& extentSymbols)
      : graph(freedGraph), symbols(extentSymbols) {}

  /// Replaces a constant that counts if its readers use the numbers as counts.
  void count(ir::Value& constant);
  /// The same for one number that is computed from extents, such as the position of the only token.
  void countComputed(ir::Value& value);
  /// Frees a Range, ConstantOfShape, Expand, or Slice of constants whose length is an exported
  /// extent; returns whether it was one.
  bool freesConstants(ir::Node& node);

private:
  void countOne(ir::Value& constant, int64_t number);
  llvm::SmallVector<ir::Use*, 4> usesOf(const ir::Value& constant,
                                        llvm::function_ref<bool(const ir::Use&)> isMeant) const;
  void countFor(ir::Value& counted, const std::pair<ir::Dim, ir::Dim>& range, unsigned axis,
                llvm::function_ref<bool(const ir::Use&)> isMeant);
  bool freeRange(ir::Node& node);
  bool freeList(ir::Node& node, unsigned operand);
  bool freeTable(ir::Node& node);

  ir::Graph& graph;
  ExtentSymbols& symbols;
};

} // namespace kvopt::extents
