// PositionFlow: the values of a decoder that depend on positions.
#pragma once

#include "passes/analysis/cache/site.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace kvopt::analysis {

/// Follows positions forward from their sources: inputs that are not tokens or floating-point rows,
/// the number of earlier rows, and cached rows. Results of attention count as independent of
/// positions; that must be proved for its operands. An If whose branches differ in whether they
/// read the past is followed, too; its condition does not depend on positions.
class PositionFlow {
public:
  /// Dependence of a value: on nothing, on tokens and floating-point inputs, on positions, or on
  /// both.
  enum class State { Constant = 0, Data = 1, Position = 2, Both = 3 };

  PositionFlow(const ir::Graph& graph, llvm::ArrayRef<AttentionSite> sites);

  State of(const ir::Value& value) const;
  bool isFree(const ir::Value& value) const {
    return of(value) == State::Constant || of(value) == State::Data;
  }
  /// Whether the graph is the main graph or a followed branch.
  bool follows(const ir::Graph& graph) const {
    return !graph.parentNode() || choices.contains(graph.parentNode());
  }
  /// For a value that depends on both: the node at which positions enter the data.
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
  llvm::DenseSet<const ir::Node*> choices;       ///< between reading the past and ignoring it
  llvm::SmallVector<std::string, 2> stepSymbols; ///< symbols of the batch and of the new tokens
};

} // namespace kvopt::analysis
