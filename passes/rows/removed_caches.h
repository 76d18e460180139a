// Taking caches out of a model's interface.
#pragma once

#include "passes/pattern/rewriter.h"

namespace kvopt::rows {

/// Makes nodes that read the extents of `holders` read those of other inputs. `holders` are inputs
/// that are about to go, whose extents are forgotten, and values that are made of them. False, and
/// nothing changed, where no other input has the same extents.
bool moveShapeReaders(llvm::ArrayRef<ir::Value*> holders, pattern::Rewriter& rewriter);

/// Removes inputs whose readers are dead: what was replaced, and `outputs`, which made outputs that
/// are gone.
void removeCaches(llvm::ArrayRef<ir::Value*> pasts, llvm::ArrayRef<ir::Node*> outputs,
                  pattern::Rewriter& rewriter);

} // namespace kvopt::rows
