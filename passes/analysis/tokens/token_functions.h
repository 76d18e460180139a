// Values of a decoder that are functions of single tokens, or of single rows of a batch.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/tokens/prefix_sequences.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// The nodes that depend on a token's position in its sequence. Everything else that the graph
/// computes outside attention is a function of single tokens: run on only the last tokens of a
/// sequence, it gives their results, once these positions start at the number of earlier tokens. P
/// is the number of rows in the caches, 0 for a graph that computes whole sequences.
struct TokenFunctions {
  /// Range(P, P + S, 1): the positions of S tokens.
  std::vector<ir::Node*> positions;
  /// Slice(table, P, P + S) along one axis of a constant: entries by position.
  std::vector<ir::Node*> tables;
  /// Operands that are sequences of all tokens; the node takes the last S of them.
  struct LastRows {
    ir::Node* node;
    unsigned operand;
    unsigned axis;
  };
  std::vector<LastRows> lastRows;
};

/// The reason why a token's result depends on other tokens, or on their number, outside the
/// attention of `sites`.
struct TokenMixing {
  const ir::Node* node;
  std::string why;
};

/// Follows the tokens from the inputs to the outputs. `tokens` is the symbol of their number, which
/// is the extent of every token axis. Masks of attention among the tokens are not followed; for
/// caches, the rows must go to attention only. An operator that is not known to treat tokens
/// separately mixes them. `sequences` are known for all tokens, including earlier ones.
std::variant<TokenFunctions, TokenMixing>
findTokenFunctions(const ir::Graph& graph, llvm::ArrayRef<AttentionSite> sites,
                   llvm::StringRef tokens, const PrefixSequences& sequences = PrefixSequences());

/// The same for the rows of a batch, masks included: the reason why a row's result depends on other
/// rows, or on their number; nullopt if it does not. `batch` is the symbol of their number.
std::optional<TokenMixing>
findBatchMixing(const ir::Graph& graph, llvm::ArrayRef<AttentionSite> sites, llvm::StringRef batch);

} // namespace kvopt::analysis
