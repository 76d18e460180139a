// CodeStep: what a node does on the way from rows to the codes of a cache.
#pragma once

#include "llvm/ADT/DenseMap.h"

namespace kvopt::ir {
class Node;
} // namespace kvopt::ir

namespace kvopt::check {

enum class CodeStep {
  Rounds,      ///< only rounds: the result represents the operand
  PacksFirst,  ///< adds codes to others times a constant, which are the first operand
  PacksSecond, ///< the same with the second operand
};

using CodeSteps = llvm::DenseMap<const ir::Node*, CodeStep>;

} // namespace kvopt::check
