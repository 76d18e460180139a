// Extents that a graph fixes although its inputs declare a symbol.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/SmallVector.h"

#include <string>

namespace kvopt::extents {

/// A symbol of an input that can have only one value.
struct FixedExtent {
  std::string symbol;
  int64_t value = 0;
  unsigned axis = 0; ///< axis of the input that declares the symbol
  /// The first node whose result has that extent in the place of the symbol; null if it is not
  /// known.
  const ir::Node* node = nullptr;

  /// `batch is 1: node '/Reshape_7' (Reshape) fixes it`.
  std::string text() const;
};

/// Extents of inputs to which the graph appends rows of fixed extents: past [batch, 2, P, 8] and
/// rows [1, 2, S, 8]. An operator that joins them fails for any other batch. Requires inferred
/// types.
llvm::SmallVector<FixedExtent, 1> fixedExtents(const ir::Graph& graph);

/// Replaces the symbols by their values in the types of all values. Types must be inferred again.
void fixSymbols(ir::Graph& graph, llvm::ArrayRef<FixedExtent> fixed);

} // namespace kvopt::extents
