// BlockLowering: writes caches as blocks, each an input of its own.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/targets/kvopt/kvopt_operands.h"
#include "passes/targets/support/gapped_keys.h"
#include "passes/targets/support/length_input.h"
#include "passes/targets/target.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt {

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
std::optional<MatchFailure> supportsBlocks(const AttentionSite& site, BlockAttention kind);

/// Lowers sites of one model, each of which supportsBlocks.
class BlockLowering {
public:
  BlockLowering(Model& lowered, const LowerOptions& options, Journal& editJournal,
                std::string targetName, BlockAttention kind);

  /// Fails without a capacity: it says how many blocks there are.
  llvm::Expected<Manifest> run(llvm::ArrayRef<AttentionSite*> sites);

private:
  /// The inputs that one cache has become.
  using Blocks = std::vector<Value*>;

  void nameRows();
  void fixRows();
  Blocks& splitCache(const AttentionSite& site, CacheUpdate& update, CacheRole role);
  void joinBlocks(const CacheUpdate& update, const Blocks& blocks, Rewriter& rewriter);
  void handOutNewRows(CacheUpdate& update, ManifestCache& cache, Rewriter& rewriter);
  bool canFuse(const AttentionSite& site);
  /// Writes attention over keys and values in one piece.
  llvm::Error attend(AttentionSite& site);
  GappedKeys gappedKeys();
  llvm::Error fuse(AttentionSite& site, const Blocks& keys, const Blocks& values);
  void finishManifest();
  void addVariants();

  Model& model;
  Graph& graph;
  Journal& journal;
  BlockAttention kind;
  std::optional<int64_t> capacity;
  int64_t size;
  KvoptOperands operands;
  Manifest manifest;
  std::optional<LengthInput> length;
  /// The rows of each block: what the model calls them, or how many there are.
  std::vector<Dim> blockRows;
  /// int64 [1]: the rows of all blocks, where they are fixed.
  Value* pastRows = nullptr;
  llvm::DenseMap<const Value*, Blocks> blocksOf;
  /// The layouts that the function body is written for.
  std::optional<std::pair<CacheForm, CacheForm>> fusedForms;
  std::optional<CacheForm> latentForm;
};

} // namespace kvopt
