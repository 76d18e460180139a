// Equations between symbolic extents that a graph's operators require.
#pragma once

#include "ir/graph.h"

#include <optional>
#include <vector>

namespace kvopt::analysis {

struct ExtentEquation {
  ir::Dim left;
  ir::Dim right;
  /// Whether the operator fails unless the extents are equal. If false, either extent may be 1 and
  /// broadcast.
  bool isStrict = false;
  const ir::Node* node = nullptr;
};

/// Every pair of extents that an operator relates and that are not known to be equal; both depend
/// on symbols. Axes that are joined or summed over are strict, axes that broadcast are not.
std::vector<ExtentEquation> extentEquations(const ir::Graph& graph);

/// Adds the equations of one node. Most repetitions are left out, because layers repeat each
/// other's equations.
void addExtentEquations(const ir::Node& node, std::vector<ExtentEquation>& equations);

/// One symbol in terms of others.
struct SolvedExtent {
  std::string symbol;
  ir::Dim value;
};

/// Solves for a symbol that occurs once, in a linear term, and whose value cannot be negative. If
/// there are two bare symbols, the one that `prefers` names is kept. nullopt if no symbol
/// qualifies.
std::optional<SolvedExtent>
solvedExtent(const ExtentEquation& equation,
             llvm::function_ref<bool(llvm::StringRef kept, llvm::StringRef replaced)> prefers);

} // namespace kvopt::analysis
