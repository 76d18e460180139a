// What can be done about sites whose extents are not known.
#pragma once

#include "passes/analysis/cache/site.h"

namespace kvopt::analysis {

/// Where extents that are not known at a value come from.
struct UnknownExtents {
  /// An input whose declaration lacks them, or a result whose operands have all of theirs; null
  /// where everything in the vicinity is known.
  const ir::Value* source = nullptr;

  bool isUndeclared() const { return source && !source->producer(); }
};

/// Searches backwards from the values that a failure concerns, the nearest first.
UnknownExtents findUnknownExtents(llvm::ArrayRef<const ir::Value*> concerned);

/// Gives failures about shapes a hint that applies to the model: to declare what is not declared,
/// or the node from which on extents are not known. Other failures, and hints that are there, stay.
void addShapeHints(const ir::Graph& graph, SiteList& sites);

} // namespace kvopt::analysis
