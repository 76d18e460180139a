// Which values of a decoder are functions of single tokens, or of single rows of a batch.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/tokens/prefix_sequences.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// What a graph takes from the place of a token in its sequence. All else that it computes outside
/// of attention is a function of single tokens: run on the last tokens of a sequence only, it gives
/// their results, once these places start at the number of earlier ones. P is how many rows its
/// caches hold, 0 for a graph that computes whole sequences.
struct TokenFunctions {
  /// Range(P, P + S, 1): the positions of S tokens.
  std::vector<ir::Node*> positions;
  /// Slice(table, P, P + S) along one axis of a constant: its entries by position.
  std::vector<ir::Node*> tables;
  /// Operands that are sequences of all tokens, of which the node takes the S last ones.
  struct LastRows {
    ir::Node* node;
    unsigned operand;
    unsigned axis;
  };
  std::vector<LastRows> lastRows;
};

/// What makes a token's result depend on other tokens, or on how many there are, outside of the
/// attention of `sites`.
struct TokenMixing {
  const ir::Node* node;
  std::string why;
};

/// Follows the tokens from the inputs to the outputs. `tokens` is the symbol of their number, the
/// extent of every axis that they lie along. Masks of attention among the tokens are not followed,
/// and of caches only that their rows go nowhere but to attention. What is not known to treat
/// tokens apart mixes them. `sequences` are known for all tokens, also for earlier ones.
std::variant<TokenFunctions, TokenMixing>
findTokenFunctions(const ir::Graph& graph, llvm::ArrayRef<AttentionSite> sites,
                   llvm::StringRef tokens, const PrefixSequences& sequences = PrefixSequences());

/// The same of the rows of a batch, masks included: what makes a row's result depend on other rows,
/// or on how many there are; nullopt if nothing does. `batch` is the symbol of their number.
std::optional<TokenMixing>
findBatchMixing(const ir::Graph& graph, llvm::ArrayRef<AttentionSite> sites, llvm::StringRef batch);

} // namespace kvopt::analysis
