// Sequences of all tokens that a graph computes from inputs with one element per key.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace kvopt::analysis {

/// A value with one element per token, which depends on that token and on earlier ones.
struct PrefixSequence {
  unsigned axis = 0;      ///< axis of the tokens
  bool isCounted = false; ///< includes sums over earlier tokens
};

using PrefixSequences = llvm::DenseMap<const ir::Value*, PrefixSequence>;

/// The inputs themselves, and values computed from them and from constants by operators that keep
/// tokens in their places: elementwise operators, sums over earlier tokens, and movements of other
/// axes. If each input gets more tokens at the front, the last elements of these values are those
/// for the whole sequence. `tokens` is the extent of the tokens' axes.
PrefixSequences findPrefixSequences(const ir::Graph& graph, llvm::ArrayRef<const ir::Value*> inputs,
                                    const ir::Dim& tokens);

/// The graph inputs from which such operators compute a value; nullopt if it has other operands.
std::optional<llvm::SmallVector<const ir::Value*, 2>> prefixInputs(const ir::Value& value);

} // namespace kvopt::analysis
