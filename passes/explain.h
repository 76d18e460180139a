// Near misses: the furthest failure of a rule at a root, and their collection.
#pragma once

#include "passes/reason.h"

#include <string>
#include <vector>

namespace kvopt {

/// The furthest that one attempt came before it failed.
struct NearMiss {
  std::string rule;
  std::string root;     ///< name of the root node
  unsigned matched = 0; ///< nodes that had matched when it failed
  std::string path;     ///< place in the pattern
  MatchFailure failure;
  bool isSet = false;
};

/// Near misses of a run of rules, one per rule and root: the furthest. Ranked by how far they came.
class NearMissList {
public:
  void add(NearMiss miss);
  /// The furthest first.
  std::vector<NearMiss> ranked() const;
  /// The furthest at one root; null if none was recorded.
  const NearMiss* furthestAt(const std::string& root) const;
  void forget(const std::string& root);

private:
  std::vector<NearMiss> misses;
};

} // namespace kvopt
