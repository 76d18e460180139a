// Hints for sites with unknown extents.
#pragma once

#include "passes/analysis/cache/site.h"

namespace kvopt::analysis {

/// Origin of unknown extents at a value.
struct UnknownExtents {
  /// An input whose declaration lacks extents, or a result all of whose operands have theirs; null
  /// if all extents nearby are known.
  const ir::Value* source = nullptr;

  bool isUndeclared() const { return source && !source->producer(); }
};

/// Searches backwards from the values that a failure concerns, nearest first.
UnknownExtents findUnknownExtents(llvm::ArrayRef<const ir::Value*> concerned);

/// Adds hints to failures about shapes: to declare missing extents, or the node after which extents
/// are unknown. Other failures and existing hints do not change.
void addShapeHints(const ir::Graph& graph, SiteList& sites);

} // namespace kvopt::analysis
