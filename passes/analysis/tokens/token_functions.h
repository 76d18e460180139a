// Which values of a decoder without caches are functions of single tokens.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/cache/site.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// What a graph that computes whole sequences takes from the place of a token in its sequence. All
/// else that it computes outside of attention is a function of single tokens: run on the last
/// tokens of a sequence only, it gives their results, once these places start at the number of
/// earlier ones.
struct TokenFunctions {
  /// Range(0, S, 1): the positions of S tokens.
  std::vector<ir::Node*> positions;
  /// Slice(table, 0, S) along one axis of a constant: its entries by position.
  std::vector<ir::Node*> tables;
};

/// What makes a token's result depend on other tokens, or on how many there are, outside of the
/// attention of `sites`.
struct TokenMixing {
  const ir::Node* node;
  std::string why;
};

/// Follows the tokens from the inputs to the outputs. `tokens` is the symbol of their number, the
/// extent of every axis that they lie along. Masks of attention among the tokens are not followed.
/// What is not known to treat tokens apart mixes them.
std::variant<TokenFunctions, TokenMixing> findTokenFunctions(const ir::Graph& graph,
                                                             llvm::ArrayRef<AttentionSite> sites,
                                                             llvm::StringRef tokens);

} // namespace kvopt::analysis
