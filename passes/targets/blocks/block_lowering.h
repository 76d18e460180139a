// BlockLowering: writes caches as blocks, each an input of its own.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/targets/kvopt/kvopt_operands.h"
#include "passes/targets/support/length_input.h"
#include "passes/targets/target.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::targets {

/// Rows of a block, unless told otherwise.
inline constexpr int64_t defaultBlockSize = 1024;

/// Why the caches of a site cannot be blocks, whatever attends over them; nullopt if they can, or
/// if the site has none that grow and can stay as it is.
std::optional<pattern::MatchFailure> blocksObstacle(const analysis::AttentionSite& site);

/// Whether each block of the site's caches can go to attention by itself, without being joined with
/// others first.
bool takesBlocksApart(const analysis::AttentionSite& site);

/// Lowers sites of one model, none of which has a blocksObstacle. What attends over the blocks is
/// for derived classes.
class BlockLowering {
public:
  BlockLowering(ir::Model& lowered, const LowerOptions& options, pattern::Journal& editJournal,
                std::string targetName);
  virtual ~BlockLowering() = default;

  /// Fails without a capacity: it says how many blocks there are.
  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

protected:
  /// The inputs that one cache has become.
  using Blocks = std::vector<ir::Value*>;

  /// Before any edit, where a cache will be split: whether so many blocks are too many.
  virtual llvm::Error checkBlockCount(int64_t) const { return llvm::Error::success(); }
  /// The rows of each block: symbols that the model does not use, the same in all caches.
  virtual std::vector<ir::Dim> rowsOfBlocks();
  /// Writes attention over keys and values in one piece.
  virtual llvm::Error attend(analysis::AttentionSite& site) = 0;
  /// Writes a site whose caches are to be split.
  virtual llvm::Error attendToBlocks(analysis::AttentionSite& site);
  /// Completes the manifest, of a graph without dead nodes.
  virtual llvm::Error describeVariants() { return llvm::Error::success(); }
  /// The model's imports, before and after lowering; it had the version `irVersion`.
  virtual void prepareModel() {}
  virtual void finishModel(int64_t /*irVersion*/) {}

  Blocks& splitCache(const analysis::AttentionSite& site, analysis::SiteCache& update,
                     ir::CacheRole role);
  bool isSplit(const analysis::SiteCache& update) const { return blocksOf.count(update.past) != 0; }

  static constexpr const char* ruleName = "lower-blocks";

  ir::Model& model;
  ir::Graph& graph;
  pattern::Journal& journal;
  std::optional<int64_t> capacity;
  int64_t size;
  KvoptOperands operands;
  ir::Manifest manifest;
  std::optional<LengthInput> length;
  std::vector<ir::Dim> blockRows;

private:
  void joinBlocks(const analysis::SiteCache& update, const Blocks& blocks,
                  pattern::Rewriter& rewriter);
  void handOutNewRows(analysis::SiteCache& update, ir::ManifestCache& cache,
                      pattern::Rewriter& rewriter);
  void finishManifest();

  llvm::DenseMap<const ir::Value*, Blocks> blocksOf;
};

} // namespace kvopt::targets
