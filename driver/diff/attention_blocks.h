// Attention blocks of a model: the model's own nodes between the caches and the result.
#pragma once

#include "driver/op_counts.h"
#include "driver/recover.h"
#include "passes/analysis/cache/site.h"

namespace kvopt::driver {

/// Attention block of one layer. A model written by kvopt has a block for each layer of its
/// manifest; other models have one for each attention layer that was found.
struct AttentionSubgraph {
  unsigned layer = 0;
  llvm::StringRef kind; ///< value of siteKindName
  /// Nodes that process the caches on the way to the attention's result and to the presents, in
  /// execution order, without the computation of masks and queries. For a layer without caches: the
  /// nodes around the softmax.
  std::vector<const ir::Node*> nodes;
  std::vector<std::string> pasts;    ///< inputs that hold its caches
  std::vector<std::string> presents; ///< outputs that correspond to `pasts`
  /// Whether each present must be written to its past.
  bool oneBuffer = false;

  std::string id() const { return "L" + std::to_string(layer); }
  OpCounts ops() const;
};

/// A model file and its blocks.
struct BlockedModel {
  std::unique_ptr<ir::Model> model; ///< as read, with inferred types
  std::vector<AttentionSubgraph> blocks;
};

/// Reads a model and finds its blocks. Linear in its nodes.
llvm::Expected<BlockedModel> readBlocks(const ModelSource& source, const Toolkit& toolkit);

} // namespace kvopt::driver
