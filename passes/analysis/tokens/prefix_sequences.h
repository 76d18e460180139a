// What a graph computes along all tokens from inputs that are as long as all keys.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace kvopt::analysis {

/// A value with an element for each token, which depends on that token and on those before it.
struct PrefixSequence {
  unsigned axis = 0;      ///< the tokens'
  bool isCounted = false; ///< sums over earlier tokens are in it
};

using PrefixSequences = llvm::DenseMap<const ir::Value*, PrefixSequence>;

/// The inputs themselves, and what is computed from them and from constants by operators that keep
/// tokens in their places: elementwise ones, sums over earlier tokens, and movements of other axes.
/// Where each input has more tokens in front, the last elements of these values are what they are
/// for a sequence of all tokens. `tokens` is the extent of the tokens' axes.
PrefixSequences findPrefixSequences(const ir::Graph& graph, llvm::ArrayRef<const ir::Value*> inputs,
                                    const ir::Dim& tokens);

/// The graph inputs that a value is computed from by such operators; nullopt where something else
/// is among its operands.
std::optional<llvm::SmallVector<const ir::Value*, 2>> prefixInputs(const ir::Value& value);

} // namespace kvopt::analysis
