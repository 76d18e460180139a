// Matcher: tries one pattern at one root.
#pragma once

#include "passes/pattern/constraints.h"
#include "passes/pattern/explain.h"
#include "passes/pattern/match.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::pattern {

/// A pattern with its constraints, ready to be tried at any root. Immutable.
class CompiledPattern {
public:
  CompiledPattern(P pattern, Constraints constraints);

  const PatternNode& root() const { return rootPattern.node(); }
  const Constraints& constraints() const { return demands; }
  /// Operators that can be the root of a match.
  llvm::ArrayRef<ir::OpName> rootOps() const { return roots; }
  /// Path from the root to a place, for messages: `MatMul/0:Softmax/0:Add`.
  llvm::StringRef path(const PatternNode& place) const;

private:
  void collect(const PatternNode& place, const std::string& prefix, bool atRoot);

  P rootPattern;
  Constraints demands;
  llvm::SmallVector<ir::OpName, 2> roots;
  llvm::DenseMap<const PatternNode*, std::string> paths;
};

struct MatcherOptions {
  /// Maximum number of places tried per root. Exceeding it is reported as `step-budget`.
  unsigned stepBudget = 100000;
};

/// Tries `pattern` with `root` as its root node. Backtracking is complete: a failure anywhere,
/// constraints included, re-opens every earlier choice. Never edits the graph. `nearMiss`, if
/// given, receives the furthest failure of a failed attempt. `gaveUp`, if given, is set to whether
/// the step budget ended the search; the result says nothing about the root then.
std::optional<Match> matchAt(const CompiledPattern& pattern, ir::Node& root,
                             const MatcherOptions& options = {}, NearMiss* nearMiss = nullptr,
                             bool* gaveUp = nullptr);

} // namespace kvopt::pattern
