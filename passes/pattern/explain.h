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

/// The furthest point that one attempt reached before it failed.
struct NearMiss {
  std::string rule;
  std::string root;     ///< name of the root node
  unsigned matched = 0; ///< number of nodes that had matched
  std::string path;     ///< place in the pattern
  /// Labels (see `labelOf`) of the nodes that had matched, starting at the root.
  std::vector<std::string> nodes;
  MatchFailure failure;
  bool isSet = false;
};

/// Label of a node in reasons and near misses: its name or, for an unnamed node, the name of its
/// first result.
std::string labelOf(const ir::Node& node);

/// Near misses of a run of rules, ranked by how far they matched. Keeps the furthest for each rule
/// and root.
class NearMissList {
public:
  /// Records the near misses of every rule.
  NearMissList() = default;
  /// Records the near misses of these rules only; no others are built.
  explicit NearMissList(llvm::ArrayRef<std::string> rules);

  bool listensTo(llvm::StringRef rule) const { return all || wanted.contains(rule); }
  void add(NearMiss miss);
  /// Near misses, furthest first.
  std::vector<NearMiss> ranked() const;
  /// The furthest near miss at one root; null if none was recorded.
  const NearMiss* furthestAt(const std::string& root) const;
  /// Drops the near misses at a root at which a rule was applied later.
  void forget(const std::string& root);

private:
  bool all = true;
  llvm::StringSet<> wanted;
  std::vector<NearMiss> misses;                         // isSet is false for a forgotten near miss
  llvm::StringMap<llvm::SmallVector<size_t, 2>> byRoot; // indices into `misses`
};

} // namespace kvopt::pattern
