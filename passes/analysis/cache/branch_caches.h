// Caches of decoders that are two in one: an If whose branches update the same caches, one of them
// behind the past, the other, for the first step, from the start.
#pragma once

#include "passes/analysis/cache/site.h"

namespace kvopt::analysis {

/// Whether at most one of the two nodes runs: they stand in different branches of one If.
bool isExclusive(const ir::Node& a, const ir::Node& b);

/// The graph that holds the graph that … holds `graph`.
const ir::Graph& outermostGraph(const ir::Graph& graph);

/// What decides between the branches of an If: the value that its condition is, or is the opposite
/// of, seen through operators that keep a bool.
struct Condition {
  ir::Value* source = nullptr;
  bool inverted = false;
};
Condition conditionOf(const ir::Node& choice);

/// Completes the sites that stand in branches, of which `cache->output` is not set: follows each
/// present through the results of the Ifs around it to the output of the model that it becomes, and
/// demands that every branch that could have given that output updates the same cache. A branch
/// whose attention reads no past, and which hands out its keys and values where the others hand out
/// presents, updates the others' caches from the start. What cannot be completed is refused.
void joinBranchCaches(SiteList& sites);

} // namespace kvopt::analysis
