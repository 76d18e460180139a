// The rule driver: applies rules to a fixpoint.
#pragma once

#include "passes/pattern/explain.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::pattern {

struct RuleDriverOptions {
  MatcherOptions matcher;
  /// Applications allowed per node of the graph before the driver gives up.
  unsigned applicationsPerNode = 16;
  /// Where near misses go; null when nobody listens.
  NearMissList* nearMisses = nullptr;
  /// Roots, as the journal calls them, at which no rule of group Raise may be applied; may be null.
  const llvm::StringSet<>* leftAlone = nullptr;
};

struct RuleDriverResult {
  unsigned applications = 0;
  /// Attempts that the step budget ended; the rules may have missed something there.
  unsigned gaveUp = 0;
  bool changed() const { return applications != 0; }
};

/// Applies `rules` to every node of `graph` until none matches. Rules are indexed by root operator
/// and tried in the given order; after an application the nodes around it are tried again. Matched
/// nodes that nobody reads any more are erased. Subgraphs are not entered. Fails when the bound is
/// reached; the error names the rules that kept being applied.
llvm::Expected<RuleDriverResult> applyRules(ir::Graph& graph,
                                            llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                                            Journal& journal,
                                            const RuleDriverOptions& options = {});

/// The same for the graph and then, depth first, for every subgraph. In a subgraph a rule also sees
/// what the enclosing graphs compute; new nodes stand in the subgraph.
llvm::Expected<RuleDriverResult>
applyRulesWithSubgraphs(ir::Graph& graph, llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                        Journal& journal, const RuleDriverOptions& options = {});

} // namespace kvopt::pattern
