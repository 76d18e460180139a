// LengthInput: the graph input that holds the number of valid rows of a cache whose extent is its
// capacity.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::targets {

/// Gives a graph the extent `capacity` and, on demand, the input `past_length`.
class LengthInput {
public:
  /// `pastRows` is the model's name for the number of earlier rows. Without a given capacity, the
  /// capacity is a new symbol.
  LengthInput(ir::Graph& graph, ir::Dim pastRows, std::optional<int64_t> capacity);

  /// int64 [1]; added to the graph by the first call.
  ir::Value& value();
  bool isAdded() const { return input != nullptr; }
  const ir::Dim& capacity() const { return slots; }

  /// Shape(past) now returns the capacity. Its readers, in subgraphs too, receive the length
  /// instead, or `most` if the past never had more rows than that.
  void rewireShapeReaders(ir::Value& past, unsigned axis, pattern::Rewriter& rewriter,
                          std::optional<int64_t> most = std::nullopt);
  /// Type of a cache with a capacity of `capacity` rows.
  ir::TensorType sharedType(const analysis::SiteCache& update) const;

private:
  std::string freshSymbol(const std::string& base) const;

  ir::Graph& graph;
  ir::Dim rows;
  ir::Dim slots;
  ir::Value* input = nullptr;
  /// Shape nodes that must read the buffer's extents.
  llvm::DenseSet<const ir::Node*> capacityReaders;
};

} // namespace kvopt::targets
