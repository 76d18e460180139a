// PositionFlow: which values of a decoder depend on positions.
#pragma once

#include "passes/analysis/cache/site.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace kvopt::analysis {

/// Follows positions forward from where they come in: inputs that are not tokens or floating-point
/// rows, the number of earlier rows, and cached rows. What attention gives counts as free of them;
/// whether that is so is to be shown of its operands. Branches of which one ignores the past are
/// followed, too; which of the two is taken says nothing of positions.
class PositionFlow {
public:
  /// A value depends on nothing, on tokens and floating-point inputs, on positions, or on both.
  enum class State { Constant = 0, Data = 1, Position = 2, Both = 3 };

  PositionFlow(const ir::Graph& graph, llvm::ArrayRef<AttentionSite> sites);

  State of(const ir::Value& value) const;
  bool isFree(const ir::Value& value) const {
    return of(value) == State::Constant || of(value) == State::Data;
  }
  /// Whether the graph is the main one, or a branch that is followed.
  bool follows(const ir::Graph& graph) const {
    return !graph.parentNode() || choices.contains(graph.parentNode());
  }
  /// The node at which positions come into data, of a value that depends on both.
  const ir::Node* entry(const ir::Value& value) const;

private:
  void visitGraph(const ir::Graph& graph);
  void visit(const ir::Node& node);
  void visitBranches(const ir::Node& node);
  State ofOperands(const ir::Node& node) const;
  State ofMoved(const ir::Node& node) const;
  bool countsEarlierRows(llvm::ArrayRef<ir::Dim> integers) const;

  llvm::DenseMap<const ir::Value*, State> states;
  llvm::DenseSet<const ir::Node*> attentions;
  llvm::DenseSet<const ir::Node*> writers;
  llvm::DenseSet<const ir::Node*> choices;       ///< between reading a past and ignoring it
  llvm::SmallVector<std::string, 2> stepSymbols; ///< of the batch and the new tokens
};

} // namespace kvopt::analysis
