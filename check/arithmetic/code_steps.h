// CodeStep: what a node does on the way from rows to the codes of a cache.
#pragma once

#include "llvm/ADT/DenseMap.h"

namespace kvopt::ir {
class Node;
} // namespace kvopt::ir

namespace kvopt::check {

struct CodeStep {
  enum Kind {
    Rounds,      ///< only rounds: the operand is the result
    PacksFirst,  ///< adds codes to others times a constant, which are the first operand
    PacksSecond, ///< the same with the second operand
  };
  Kind kind = Rounds;
  /// The largest magnitude of a code. A clamp to less changes numbers.
  double largest = 0;
};

using CodeSteps = llvm::DenseMap<const ir::Node*, CodeStep>;

} // namespace kvopt::check
