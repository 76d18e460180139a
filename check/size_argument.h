// Why equality in a small scope is equality at all sizes.
#pragma once

#include "ir/node.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>

namespace kvopt::ir {
class Model;
} // namespace kvopt::ir

namespace kvopt::check {

/// Reason why a region may behave differently beyond the scope; empty if there is none. A region
/// treats all places of an axis alike if its operators move elements by affine maps, combine all
/// elements of an axis, and compare affine forms of indices. Its behavior then changes only where
/// two such forms meet, and each constant in them is within the scope. `largest` is the largest
/// extent of the scope.
std::string sizeArgumentGap(const ir::Model& model, llvm::ArrayRef<const ir::Node*> nodes,
                            int64_t largest);

} // namespace kvopt::check
