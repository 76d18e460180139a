// Removal of caches from a model's interface.
#pragma once

#include "passes/pattern/rewriter.h"

namespace kvopt::rows {

/// Makes nodes that read the extents of `holders` read those of other inputs. `holders` are inputs
/// that will be removed, whose extents are ignored, and values computed from them. Returns false,
/// with no change, if no other input has the same extents.
bool moveShapeReaders(llvm::ArrayRef<ir::Value*> holders, pattern::Rewriter& rewriter);

/// Removes inputs whose readers are dead: replaced nodes, and `outputs`, which produced removed
/// outputs.
void removeCaches(llvm::ArrayRef<ir::Value*> pasts, llvm::ArrayRef<ir::Node*> outputs,
                  pattern::Rewriter& rewriter);

} // namespace kvopt::rows
