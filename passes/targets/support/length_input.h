// LengthInput: the graph input that says how many rows of a cache are valid, where the cache's own
// extent no longer does.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::targets {

/// Gives a graph the extent `capacity` and, when somebody needs it, the input `past_length`.
class LengthInput {
public:
  /// `pastRows` is what the model calls the number of earlier rows; a capacity that is not given is
  /// a symbol of its own.
  LengthInput(ir::Graph& graph, ir::Dim pastRows, std::optional<int64_t> capacity);

  /// int64 [1]; added to the graph by the first call.
  ir::Value& value();
  bool isAdded() const { return input != nullptr; }
  const ir::Dim& capacity() const { return slots; }

  /// Shape(past) says the capacity from now on: its readers, in subgraphs too, get the length, or
  /// `most` where the past had no more rows than that.
  void rewireShapeReaders(ir::Value& past, unsigned axis, pattern::Rewriter& rewriter,
                          std::optional<int64_t> most = std::nullopt);
  /// The type of a cache with room for `capacity` rows.
  ir::TensorType sharedType(const analysis::SiteCache& update) const;

private:
  std::string freshSymbol(const std::string& base) const;

  ir::Graph& graph;
  ir::Dim rows;
  ir::Dim slots;
  ir::Value* input = nullptr;
  /// Shape nodes that are meant to read the buffer's extents.
  llvm::DenseSet<const ir::Node*> capacityReaders;
};

} // namespace kvopt::targets
