// InputExtents: extents that a graph computes with, taken from its inputs.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <optional>

namespace kvopt::targets {

/// The extents that a Shape node reads; none where they are not known.
llvm::ArrayRef<ir::Dim> extentsRead(const ir::Node& shape);

/// Where to find extents: on one axis each of the inputs that are not left out.
class InputExtents {
public:
  InputExtents(const ir::Graph& graph, const llvm::StringSet<>& leftOut);

  bool has(const ir::Dim& extent) const { return find(extent).has_value(); }

  /// int64 [n]: the n extents that a Shape node reads, written before it with what inputs and
  /// constants say; null where there are none, or one that no input has.
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
