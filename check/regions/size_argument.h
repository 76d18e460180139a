// The argument that equality in a small scope is equality at all sizes.
#pragma once

#include "ir/node.h"
#include "meaning/facts/operator_facts.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <set>
#include <string>

namespace kvopt::ir {
class Model;
} // namespace kvopt::ir

namespace kvopt::check {

/// Reason why a region may behave differently beyond the scope; empty if there is none. A region
/// treats all places of an axis alike if its operators move elements by affine maps, combine all
/// elements of an axis, and compare affine forms of indices. Its behavior then changes only where
/// two such forms meet, and each constant in them is within the scope. `covered` has the
/// constants around which the scope has steps; those up to 3 always are.
std::string sizeArgumentGap(const ir::Model& model, llvm::ArrayRef<const ir::Node*> nodes,
                            const std::set<int64_t>& covered, meaning::OperatorFacts& operators);

/// Constants with which a model or its functions compare integers, and windows of attention.
std::set<int64_t> comparedConstants(const ir::Model& model);

} // namespace kvopt::check
