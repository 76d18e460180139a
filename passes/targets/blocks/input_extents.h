// InputExtents: extents that a graph computes with, read from its inputs.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <optional>

namespace kvopt::targets {

/// Extents that a Shape node returns; empty if they are not known.
llvm::ArrayRef<ir::Dim> extentsRead(const ir::Node& shape);

/// Finds each extent on an axis of an input that is not excluded.
class InputExtents {
public:
  InputExtents(const ir::Graph& graph, const llvm::StringSet<>& leftOut);

  bool has(const ir::Dim& extent) const { return find(extent).has_value(); }

  /// int64 [n]: the n extents that a Shape node returns, computed before it from inputs and
  /// constants; null if there are none, or if no input has one of them.
  ir::Value* spell(ir::Node& shape) const;

private:
  struct InputAxis {
    ir::Value* input;
    int64_t axis;
  };
  std::optional<InputAxis> find(const ir::Dim& extent) const;

  llvm::StringMap<InputAxis> axes;
};

} // namespace kvopt::targets
