// UnchangedKeys: attention that no rule raised, and whose keys and values no step changes.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseSet.h"

#include <map>
#include <string>

namespace kvopt::analysis {

/// Answers for one main graph. The first question takes one walk over the graph, and each question
/// with another extent of queries one more.
class UnchangedKeys {
public:
  explicit UnchangedKeys(const ir::Graph& graph) : graph(graph) {}

  /// Whether the keys and the values of `attention`, a softmax or a fused attention operator, are
  /// computed from inputs of another sequence alone: no input has an extent of the queries, and the
  /// model returns none of them as a cache or a state of the next step. False if keys or values are
  /// not found.
  bool areReadBy(const ir::Node& attention);

private:
  /// Values that follow from rows of the step or from caches that it changes, for queries with
  /// `rows` rows.
  const llvm::DenseSet<const ir::Value*>& changingWith(const ir::Dim& rows);

  const ir::Graph& graph;
  std::map<std::string, llvm::DenseSet<const ir::Value*>> changing; ///< by the extent of queries
};

} // namespace kvopt::analysis
