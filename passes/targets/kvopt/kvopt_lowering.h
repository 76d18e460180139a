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

/// Form of the caches in a lowered model.
struct CacheForm {
  /// Codes that rows are stored as; null: rows are stored as they are.
  const ir::RowCode* code = nullptr;
  /// Ring: the cache keeps only the rows that attention reads, if these are the last ones.
  ir::CachePlace place = ir::CachePlace::Buffer;
  /// Number of ring slots in addition to those that a step of one token reads.
  int64_t spareSlots = 0;

  bool isQuantized() const { return code != nullptr; }
  bool asRings() const { return place == ir::CachePlace::Ring; }
};

/// Lowers sites of one model; supportsKvoptSite must hold for each. Attention in branches does not
/// support quantized rows.
class KvoptLowering {
public:
  KvoptLowering(ir::Model& lowered, const LowerOptions& options, pattern::Journal& editJournal,
                CacheForm cacheForm = {});

  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

private:
  /// Lowers attention that appends to its own caches.
  llvm::Error lowerCached(analysis::AttentionSite& site);
  /// Lowers attention over a quantized cache that another site's node appends to.
  llvm::Error lowerReader(analysis::AttentionSite& site);
  /// Lowers attention over caches with fixed extents, which become quantized.
  llvm::Error lowerOverwritten(analysis::AttentionSite& site);
  /// Replaces the site's attention by attention over codes and their scales.
  struct ReadCodes {
    ir::Value* keys;
    ir::Value* keyScales;
    ir::Value* values;
    ir::Value* valueScales;
    ir::Value* pastLength;
  };
  llvm::Error readCodes(analysis::AttentionSite& site, const ReadCodes& codes,
                        pattern::Rewriter& rewriter);
  /// Declares past and present of caches that the model itself overwrites as one buffer.
  void describeOverwritten(const analysis::AttentionSite& site);
  ir::Value& pastLengthOf(const analysis::SiteCache& update);
  /// The past, or a view of it with a separate axis for the heads, and the view back.
  static ir::Value& attendedPast(const analysis::AttentionSite& site,
                                 const analysis::SiteCache& update, pattern::Rewriter& rewriter);
  static ir::Value& declaredPresent(const analysis::AttentionSite& site,
                                    const analysis::SiteCache& update, ir::Value& present,
                                    pattern::Rewriter& rewriter);
  bool isQuantized() const { return form.isQuantized(); }
  void rewireShapeReaders(const analysis::AttentionSite& site);
  static void handOut(const ir::Value& rows, ir::Value& present);
  ir::CacheOperator operatorOf(const analysis::AttentionSite& site) const;
  /// Number of slots of the rings that replace the site's caches; 0 if the caches hold all rows.
  int64_t slotsOf(const analysis::AttentionSite& site) const;
  /// Makes past and present one buffer of `slots` rows; 0 means the capacity.
  void makeShared(const analysis::SiteCache& update, ir::Value& present, int64_t slots);
  /// Extents of a buffer of `slots` rows; 0 means the capacity.
  ir::Shape bufferShape(const analysis::SiteCache& update, int64_t slots);
  /// Adds an input for the scales of the cache's rows. Its extents are those of the buffer, with
  /// one column.
  ir::Value& addScale(const analysis::SiteCache& update, int64_t slots);
  /// Makes the present of the scales an output, and a cache of the manifest.
  void handOutScale(const ir::ManifestCache& cache, ir::Value& past, ir::Value& present);
  /// The cache's entry in the manifest; null if another branch has created it.
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
  /// Number of values in a row, for pasts whose elements hold several.
  llvm::DenseMap<const ir::Value*, int64_t> codeColumns;
  /// Pasts of caches that the manifest lists.
  llvm::DenseSet<const ir::Value*> described;
  std::vector<std::pair<ir::Value*, ir::TensorType>> presentTypes;
};

} // namespace kvopt::targets
