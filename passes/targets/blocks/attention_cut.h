// AttentionCut: cuts a decoder with tiled attention into parts and tiles.
#pragma once

#include "ir/manifest/manifest.h"
#include "passes/targets/blocks/submodel.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::targets {

/// Parts run one after another, with attention between them. A value computed from constants and
/// extents alone is in every part that needs it, so that an engine that knows the extents folds it.
/// Every other value is computed once, in the first part that can compute it, and passed to later
/// parts.
class AttentionCut {
public:
  /// The model must outlive the cut and not change. `manifest` lists the blocks of its caches,
  /// whose extents are fixed. Fails unless the tiles of each attention form one chain from block to
  /// block.
  static llvm::Expected<AttentionCut> create(const ir::Model& model, const ir::Manifest& manifest,
                                             ir::ElementType state);

  /// Description of how the pieces fit together; their files have no names.
  const ir::ManifestTiles& description() const { return tiles; }

  SubmodelBoundary part(size_t index) const;
  SubmodelBoundary tile(size_t index) const;

private:
  /// Map from a block's name to its cache and its index there.
  using BlockPlaces = llvm::StringMap<std::pair<const ir::ManifestCache*, size_t>>;
  /// The tiles of one attention, first to last.
  using Chain = std::vector<const ir::Node*>;
  struct Part {
    llvm::SetVector<const ir::Value*> outputs;
    llvm::SetVector<const ir::Value*> inputs; ///< values from other parts and tiles
  };

  explicit AttentionCut(const ir::Graph& cutGraph) : graph(cutGraph) {}

  void findChains();
  void findStages();
  bool isRecomputed(const ir::Node& node) const;
  llvm::Error describeChain(const Chain& chain, const ir::Manifest& manifest,
                            const BlockPlaces& blocks);
  int64_t kindOf(const ir::Node& tile, bool takesBlocks);
  llvm::Error findParts();
  void collectInputs(size_t part);
  int64_t stageOf(const ir::Value& value) const { return stages.lookup(&value); }

  const ir::Graph& graph;
  ir::ManifestTiles tiles;
  std::vector<Chain> chains;
  /// The part that computes a value; for the result of an attention, the first part that may read
  /// it. Inputs and constants belong to all parts.
  llvm::DenseMap<const ir::Value*, int64_t> stages;
  llvm::DenseSet<const ir::Node*> recomputed;
  llvm::DenseSet<const ir::Value*> results; ///< results of attentions
  std::vector<Part> parts;
  /// One tile of a kind, and whether tiles of the kind read blocks in the caches' layout.
  struct Kind {
    const ir::Node* tile;
    bool takesBlocks;
  };
  std::vector<Kind> kinds;
  llvm::StringMap<size_t> kindNumbers; ///< keyed by the properties that tiles of a kind share
};

} // namespace kvopt::targets
