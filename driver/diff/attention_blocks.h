// The attention blocks of a model as it spells them: the nodes between caches and result.
#pragma once

#include "driver/op_counts.h"
#include "driver/recover.h"
#include "passes/analysis/cache/site.h"

namespace kvopt::driver {

/// One attention. A model that kvopt wrote has a block for each layer of its manifest, any other
/// one for each attention site.
struct AttentionSubgraph {
  unsigned layer = 0;
  llvm::StringRef kind; ///< as siteKindName says it
  /// What reads the caches on the way to the attention's result and to the presents, in execution
  /// order; what masks and queries are made of is left out. Without caches, the nodes around the
  /// softmax.
  std::vector<const ir::Node*> nodes;
  std::vector<std::string> pasts;    ///< inputs that hold its caches
  std::vector<std::string> presents; ///< the outputs that they become
  /// Each present is to be written into its past.
  bool oneBuffer = false;

  std::string id() const { return "L" + std::to_string(layer); }
  OpCounts ops() const;
};

/// A model file with its blocks.
struct BlockedModel {
  std::unique_ptr<ir::Model> model; ///< as it was read, with inferred types
  std::vector<AttentionSubgraph> blocks;
};

/// Reads a model and finds its blocks. Linear in its nodes.
llvm::Expected<BlockedModel> readBlocks(const ModelSource& source, const Toolkit& toolkit);

} // namespace kvopt::driver
