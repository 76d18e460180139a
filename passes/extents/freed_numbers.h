// Numbers that an export computed from its extents.
#pragma once

#include "passes/extents/extent_symbols.h"

namespace kvopt::extents {

/// Computes numbers that stand for extents: constants that count tokens, keys, or batch rows, and
/// what is made of constants only.
class FreedNumbers {
public:
  FreedNumbers(ir::Graph& freedGraph, ExtentSymbols& extentSymbols)
      : graph(freedGraph), symbols(extentSymbols) {}

  /// A constant that counts is computed where its readers take the numbers as such.
  void count(ir::Value& constant);
  /// The same of one number that is computed from extents, as the position of the one token.
  void countComputed(ir::Value& value);
  /// Frees a Range, ConstantOfShape, Expand, or Slice of constants that is as long as what the
  /// export fixed; whether it was one.
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
