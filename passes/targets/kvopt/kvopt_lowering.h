// KvoptLowering: writes sites with ai.kvopt's operators and their function bodies.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "passes/targets/kvopt/kvopt_operands.h"
#include "passes/targets/support/length_input.h"
#include "passes/targets/target.h"

#include <set>

namespace kvopt::targets {

class PaddedQuery;

/// How a lowered model keeps its caches.
struct CacheForm {
  ir::CacheRows rows = ir::CacheRows::Numbers;
  /// Ring: no more rows are kept than attention reads, where it reads the last ones only.
  ir::CachePlace place = ir::CachePlace::Buffer;
  /// Slots of a ring in addition to those that a step of one token reads.
  int64_t spareSlots = 0;

  bool isQuantized() const { return rows != ir::CacheRows::Numbers; }
  bool asRings() const { return place == ir::CachePlace::Ring; }
};

/// Lowers sites of one model, each of which supportsKvoptSite. Quantized rows are not for attention
/// in branches.
class KvoptLowering {
public:
  KvoptLowering(ir::Model& lowered, const LowerOptions& options, pattern::Journal& editJournal,
                CacheForm cacheForm = {});

  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

private:
  /// Attention that appends to its own caches.
  llvm::Error lowerCached(analysis::AttentionSite& site);
  /// Attention over codes that another site's node appends to.
  llvm::Error lowerReader(analysis::AttentionSite& site);
  /// Attention over caches of fixed extents, which hold codes from now on.
  llvm::Error lowerOverwritten(analysis::AttentionSite& site);
  /// Replaces the site's attention by one over codes and their scales.
  struct ReadCodes {
    ir::Value* keys;
    ir::Value* keyScales;
    ir::Value* values;
    ir::Value* valueScales;
    ir::Value* pastLength;
  };
  llvm::Error readCodes(analysis::AttentionSite& site, const ReadCodes& codes,
                        pattern::Rewriter& rewriter);
  /// Past and present of caches that the model overwrites as it is are one buffer.
  void describeOverwritten(const analysis::AttentionSite& site);
  ir::Value& pastLengthOf(const analysis::SiteCache& update);
  /// The past, or a view of it with an axis for the heads; a view back.
  static ir::Value& attendedPast(const analysis::AttentionSite& site,
                                 const analysis::SiteCache& update, pattern::Rewriter& rewriter);
  static ir::Value& declaredPresent(const analysis::AttentionSite& site,
                                    const analysis::SiteCache& update, ir::Value& present,
                                    pattern::Rewriter& rewriter);
  bool isQuantized() const { return form.isQuantized(); }
  bool hasFourBitCodes() const { return form.rows == ir::CacheRows::Int4; }
  void rewireShapeReaders(const analysis::AttentionSite& site);
  static void handOut(const ir::Value& rows, ir::Value& present);
  ir::CacheOperator operatorOf(const analysis::AttentionSite& site) const;
  /// Slots of the rings that the site's caches become; 0: they hold all rows.
  int64_t slotsOf(const analysis::AttentionSite& site) const;
  /// One buffer of so many slots; 0: of the capacity.
  void makeShared(const analysis::SiteCache& update, ir::Value& present, int64_t slots);
  /// The extents of a buffer of so many slots; 0: of the capacity.
  ir::Shape bufferShape(const analysis::SiteCache& update, int64_t slots);
  /// A new input for the scales of the cache's rows, of the buffer's extents with one column.
  ir::Value& addScale(const analysis::SiteCache& update, int64_t slots);
  /// The present beside it is the scales' one: an output, and a cache of the manifest.
  void handOutScale(const ir::ManifestCache& cache, ir::Value& past, ir::Value& present);
  /// The cache's entry of the manifest; null where another branch has made it.
  const ir::ManifestCache* describe(const analysis::SiteCache& update,
                                    const std::string& presentName, unsigned layer,
                                    ir::CacheRole role, int64_t slots = 0);
  llvm::Error replaceCaches(analysis::AttentionSite& site, ir::Node& fused,
                            const ir::CacheOperator& op, PaddedQuery& padded,
                            pattern::Rewriter& rewriter);
  void finishManifest();

  ir::Model& model;
  ir::Graph& graph;
  std::optional<int64_t> fixedCapacity;
  pattern::Journal& journal;
  CacheForm form;
  KvoptOperands operands;
  ir::Manifest manifest;
  std::optional<LengthInput> length;
  bool usesCapacity = false;
  ir::Value* zeroLength = nullptr;
  /// Of pasts that hold four-bit codes: the numbers that a row stands for.
  llvm::DenseMap<const ir::Value*, int64_t> codeColumns;
  /// Pasts whose caches the manifest names.
  llvm::DenseSet<const ir::Value*> described;
  std::vector<std::pair<ir::Value*, ir::TensorType>> presentTypes;
};

} // namespace kvopt::targets
