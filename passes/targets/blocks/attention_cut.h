// AttentionCut: where a decoder whose attention is in tiles is cut into parts, and what its tiles
// are.
#pragma once

#include "ir/manifest/manifest.h"
#include "passes/targets/blocks/submodel.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::targets {

/// Parts are run one after another, with attention between them. What is computed of constants and
/// extents alone is in every part that needs it, so that an engine that knows the extents folds it;
/// everything else is computed once, in the first part that can, and given to later ones.
class AttentionCut {
public:
  /// The model must outlive the cut and not change. `manifest` lists the blocks of its caches,
  /// whose extents are fixed. Fails for tiles that are not in one chain from block to block for
  /// each attention.
  static llvm::Expected<AttentionCut> create(const ir::Model& model, const ir::Manifest& manifest,
                                             ir::ElementType state);

  /// How the pieces are put together; their files have no names.
  const ir::ManifestTiles& description() const { return tiles; }

  SubmodelBoundary part(size_t index) const;
  SubmodelBoundary tile(size_t index) const;

private:
  /// The cache that has a block, and the block's place there, by the block's name.
  using BlockPlaces = llvm::StringMap<std::pair<const ir::ManifestCache*, size_t>>;
  /// The tiles of one attention, first to last.
  using Chain = std::vector<const ir::Node*>;
  struct Part {
    llvm::SetVector<const ir::Value*> outputs;
    llvm::SetVector<const ir::Value*> inputs; ///< that other parts and tiles give
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
  /// The part that gives a value; of the result of an attention, the first that may read it.
  /// Inputs and constants are in all.
  llvm::DenseMap<const ir::Value*, int64_t> stages;
  llvm::DenseSet<const ir::Node*> recomputed;
  llvm::DenseSet<const ir::Value*> results; ///< of attentions
  std::vector<Part> parts;
  /// A tile of each kind; whether it takes blocks as caches have them.
  struct Kind {
    const ir::Node* tile;
    bool takesBlocks;
  };
  std::vector<Kind> kinds;
  llvm::StringMap<size_t> kindNumbers; ///< by what tiles of a kind have in common
};

} // namespace kvopt::targets
