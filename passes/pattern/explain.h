// Near misses: the furthest failure of a rule at a root, and their collection.
#pragma once

#include "passes/pattern/reason.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <string>
#include <vector>

namespace kvopt::ir {
class Node;
} // namespace kvopt::ir

namespace kvopt::pattern {

/// The furthest that one attempt came before it failed.
struct NearMiss {
  std::string rule;
  std::string root;     ///< name of the root node
  unsigned matched = 0; ///< nodes that had matched when it failed
  std::string path;     ///< place in the pattern
  /// Labels (see `labelOf`) of the nodes that had matched, root first.
  std::vector<std::string> nodes;
  MatchFailure failure;
  bool isSet = false;
};

/// What reasons and near misses call a node: its name or, where it has none, its first result's.
std::string labelOf(const ir::Node& node);

/// Near misses of a run of rules, one per rule and root: the furthest. Ranked by how far they came.
class NearMissList {
public:
  /// Listens to every rule.
  NearMissList() = default;
  /// Listens to these rules only; what the others leave is never built.
  explicit NearMissList(llvm::ArrayRef<std::string> rules);

  bool listensTo(llvm::StringRef rule) const { return all || wanted.contains(rule); }
  void add(NearMiss miss);
  /// The furthest first.
  std::vector<NearMiss> ranked() const;
  /// The furthest at one root; null if none was recorded.
  const NearMiss* furthestAt(const std::string& root) const;
  /// Drops what is known of a root at which a rule was applied after all.
  void forget(const std::string& root);

private:
  bool all = true;
  llvm::StringSet<> wanted;
  std::vector<NearMiss> misses;                         // isSet is false for a forgotten one
  llvm::StringMap<llvm::SmallVector<size_t, 2>> byRoot; // places in `misses`
};

} // namespace kvopt::pattern
