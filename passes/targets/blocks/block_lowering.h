// BlockLowering: splits caches into blocks, each an input.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/targets/kvopt/kvopt_operands.h"
#include "passes/targets/support/length_input.h"
#include "passes/targets/target.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::targets {

/// Default number of rows of a block.
inline constexpr int64_t defaultBlockSize = 1024;

/// Reason why the caches of a site cannot be blocks, whatever attention reads them; nullopt if they
/// can, or if the site has no growing caches and can remain as it is.
std::optional<pattern::MatchFailure> blocksObstacle(const analysis::AttentionSite& site);

/// Whether attention can read each block of the site's caches separately, without joining blocks
/// first.
bool takesBlocksApart(const analysis::AttentionSite& site);

/// Lowers sites of one model without a blocksObstacle. Derived classes write the attention over the
/// blocks.
class BlockLowering {
public:
  BlockLowering(ir::Model& lowered, const LowerOptions& options, pattern::Journal& editJournal,
                std::string targetName);
  virtual ~BlockLowering() = default;

  /// Fails without a capacity, which determines the number of blocks.
  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

protected:
  /// The inputs that replace one cache.
  using Blocks = std::vector<ir::Value*>;

  /// Fails if that number of blocks is too large. Called before any edit, if a cache will be split.
  virtual llvm::Error checkBlockCount(int64_t) const { return llvm::Error::success(); }
  /// Number of rows of each block: symbols that the model does not use, the same for all caches.
  virtual std::vector<ir::Dim> rowsOfBlocks();
  /// Writes attention over keys and values that are not split.
  virtual llvm::Error attend(analysis::AttentionSite& site) = 0;
  /// Writes a site whose caches are split.
  virtual llvm::Error attendToBlocks(analysis::AttentionSite& site);
  /// Completes the manifest of a graph without dead nodes.
  virtual llvm::Error describeVariants() { return llvm::Error::success(); }
  /// Set the model's imports before and after lowering; `irVersion` is the model's version before.
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
