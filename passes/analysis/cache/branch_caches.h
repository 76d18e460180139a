// Caches of decoders that combine two models: an If whose branches update the same caches, one
// branch after the past, the other, for the first step, from the start.
#pragma once

#include "passes/analysis/cache/site.h"

namespace kvopt::analysis {

/// Whether at most one of the two nodes runs, because they are in different branches of one If.
bool isExclusive(const ir::Node& a, const ir::Node& b);

/// The outermost graph that contains `graph`, possibly through several levels.
const ir::Graph& outermostGraph(const ir::Graph& graph);

/// The value that selects between the branches of an If: its condition or the opposite of it,
/// followed through operators that keep a bool.
struct Condition {
  ir::Value* source = nullptr;
  bool inverted = false;
};
Condition conditionOf(const ir::Node& choice);

/// Completes the sites in branches, whose `cache->output` is not set. Follows each present through
/// the results of the enclosing Ifs to the model output that it becomes, and requires every branch
/// that could produce that output to update the same cache. A branch may read no past and return
/// its keys and values where the others return presents; it updates the others' caches from the
/// start. Incomplete sites are refused.
void joinBranchCaches(SiteList& sites);

} // namespace kvopt::analysis
