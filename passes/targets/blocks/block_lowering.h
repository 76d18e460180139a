// BlockLowering: writes caches as blocks, each an input of its own.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/targets/kvopt/kvopt_operands.h"
#include "passes/targets/support/gapped_keys.h"
#include "passes/targets/support/length_input.h"
#include "passes/targets/target.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::targets {

/// What attends over the blocks.
enum class BlockAttention {
  /// ai.kvopt::BlockKvSdpa or BlockLatentKvSdpa, or, where they do not take the layout,
  /// ai.kvopt::Sdpa over one Concat of all blocks and the new rows
  Fused,
  Plain, ///< standard operators over that Concat
  /// The same, and each block has a fixed extent: `past_length` says how many rows of all are
  /// tokens, and masks hide the others.
  Fixed,
};

/// nullopt if BlockLowering can write the site, otherwise why not.
std::optional<pattern::MatchFailure> supportsBlocks(const analysis::AttentionSite& site,
                                                    BlockAttention kind);

/// Lowers sites of one model, each of which supportsBlocks.
class BlockLowering {
public:
  BlockLowering(ir::Model& lowered, const LowerOptions& options, pattern::Journal& editJournal,
                std::string targetName, BlockAttention kind);

  /// Fails without a capacity: it says how many blocks there are.
  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

private:
  /// The inputs that one cache has become.
  using Blocks = std::vector<ir::Value*>;

  void nameRows();
  void fixRows();
  Blocks& splitCache(const analysis::AttentionSite& site, analysis::SiteCache& update,
                     ir::CacheRole role);
  void joinBlocks(const analysis::SiteCache& update, const Blocks& blocks,
                  pattern::Rewriter& rewriter);
  void handOutNewRows(analysis::SiteCache& update, ir::ManifestCache& cache,
                      pattern::Rewriter& rewriter);
  bool canFuse(const analysis::AttentionSite& site);
  /// Writes attention over keys and values in one piece.
  llvm::Error attend(analysis::AttentionSite& site);
  GappedKeys gappedKeys();
  llvm::Error fuse(analysis::AttentionSite& site, const Blocks& keys, const Blocks& values);
  void finishManifest();
  void addVariants();

  ir::Model& model;
  ir::Graph& graph;
  pattern::Journal& journal;
  BlockAttention kind;
  std::optional<int64_t> capacity;
  int64_t size;
  KvoptOperands operands;
  ir::Manifest manifest;
  std::optional<LengthInput> length;
  /// The rows of each block: what the model calls them, or how many there are.
  std::vector<ir::Dim> blockRows;
  /// int64 [1]: the rows of all blocks, where they are fixed.
  ir::Value* pastRows = nullptr;
  llvm::DenseMap<const ir::Value*, Blocks> blocksOf;
  /// The layouts that the function body is written for.
  std::optional<std::pair<ir::CacheLayout, ir::CacheLayout>> fusedLayouts;
  std::optional<ir::CacheLayout> latentLayout;
};

} // namespace kvopt::targets
