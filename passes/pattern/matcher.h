// Matcher: tries one pattern at one root.
#pragma once

#include "passes/pattern/constraints.h"
#include "passes/pattern/explain.h"
#include "passes/pattern/match.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::pattern {

/// A pattern with its constraints, ready to be tried at many roots. Immutable.
class CompiledPattern {
public:
  CompiledPattern(P pattern, Constraints constraints);

  const PatternNode& root() const { return rootPattern.node(); }
  const Constraints& constraints() const { return demands; }
  /// The operators a match can be rooted at.
  llvm::ArrayRef<ir::OpName> rootOps() const { return roots; }
  /// `MatMul/0:Softmax/0:Add`: the way from the root to a place, for messages.
  llvm::StringRef path(const PatternNode& place) const;

private:
  void collect(const PatternNode& place, const std::string& prefix, bool atRoot);

  P rootPattern;
  Constraints demands;
  llvm::SmallVector<ir::OpName, 2> roots;
  llvm::DenseMap<const PatternNode*, std::string> paths;
};

struct MatcherOptions {
  /// Places tried per root before the matcher gives up, which is reported as `step-budget`.
  unsigned stepBudget = 100000;
};

/// Tries `pattern` with `root` as its root node. Full backtracking: a failure anywhere, constraints
/// included, re-opens every earlier choice. Never edits the graph. When `nearMiss` is given, it
/// receives the furthest failure of a failed attempt. `gaveUp`, when given, is set to whether the
/// step budget ended the search; nothing is known of the root then.
std::optional<Match> matchAt(const CompiledPattern& pattern, ir::Node& root,
                             const MatcherOptions& options = {}, NearMiss* nearMiss = nullptr,
                             bool* gaveUp = nullptr);

} // namespace kvopt::pattern
