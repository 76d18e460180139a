// The rule driver: applies rules until none matches.
#pragma once

#include "passes/pattern/explain.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::pattern {

struct RuleDriverOptions {
  MatcherOptions matcher;
  /// Applications allowed per node of the graph before the driver gives up.
  unsigned applicationsPerNode = 16;
  /// Receives near misses; null to drop them.
  NearMissList* nearMisses = nullptr;
  /// Roots, by their names in the journal, at which no rule of group Raise may be applied; may be
  /// null.
  const llvm::StringSet<>* leftAlone = nullptr;
};

struct RuleDriverResult {
  unsigned applications = 0;
  /// Number of attempts that reached the step budget; rules may have missed matches there.
  unsigned gaveUp = 0;
  bool changed() const { return applications != 0; }
};

/// Applies `rules` to every node of `graph` until none matches. Rules are indexed by root operator
/// and tried in the given order; after an application the nodes around it are tried again. Matched
/// nodes without readers are erased. Subgraphs are not entered. Fails if the bound is reached; the
/// error names the rules that were applied repeatedly.
llvm::Expected<RuleDriverResult> applyRules(ir::Graph& graph,
                                            llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                                            Journal& journal,
                                            const RuleDriverOptions& options = {});

/// The same for the graph and then, depth first, for every subgraph. In a subgraph a rule also sees
/// the values of the enclosing graphs; new nodes are placed in the subgraph.
llvm::Expected<RuleDriverResult>
applyRulesWithSubgraphs(ir::Graph& graph, llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                        Journal& journal, const RuleDriverOptions& options = {});

} // namespace kvopt::pattern
