// KvoptLowering: writes sites with ai.kvopt's operators and their function bodies.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/targets/kvopt/kvopt_operands.h"
#include "passes/targets/support/length_input.h"
#include "passes/targets/target.h"

#include <set>

namespace kvopt {

class PaddedQuery;

/// How a lowered model keeps the rows of its caches.
enum class CacheRows {
  AsDeclared, ///< as numbers of the past's own type
  Quantized,  ///< as int8, with scales beside: ai.kvopt::InPlaceQuantizedKvSdpa
};

/// Lowers sites of one model, each of which supportsKvoptSite. Quantized rows are not for latent
/// caches, and not for attention in branches.
class KvoptLowering {
public:
  KvoptLowering(Model& lowered, const LowerOptions& options, Journal& editJournal,
                CacheRows keptAs = CacheRows::AsDeclared);

  llvm::Expected<Manifest> run(llvm::ArrayRef<AttentionSite*> sites);

private:
  llvm::Error lowerCached(AttentionSite& site);
  llvm::Error lowerLatent(AttentionSite& site);
  Value& pastLengthOf(const CacheUpdate& update);
  void rewireShapeReaders(const AttentionSite& site);
  static void handOut(const Value& rows, Value& present);
  void makeShared(const CacheUpdate& update, Value& present);
  /// A new input for the scales of the cache's rows, of the shared extents with one column.
  Value& addScale(const CacheUpdate& update);
  /// The result of a fused node that is the present of its `index`-th cache.
  unsigned presentResult(unsigned index) const {
    return cacheRows == CacheRows::Quantized ? 2 * index + 1 : index + 1;
  }
  /// The present beside it is the scales' one: an output, and a cache of the manifest.
  void handOutScale(const ManifestCache& cache, Value& past, Value& present);
  /// The cache's entry of the manifest; null where another branch has made it.
  const ManifestCache* describe(const CacheUpdate& update, const std::string& presentName,
                                unsigned layer, CacheRole role);
  llvm::Error replaceCaches(AttentionSite& site, Node& fused, llvm::ArrayRef<CacheUpdate*> updates,
                            llvm::ArrayRef<CacheRole> roles, PaddedQuery& padded,
                            Rewriter& rewriter);
  void finishManifest();

  Model& model;
  Graph& graph;
  std::optional<int64_t> fixedCapacity;
  Journal& journal;
  CacheRows cacheRows;
  KvoptOperands operands;
  Manifest manifest;
  std::optional<LengthInput> length;
  Value* zeroLength = nullptr;
  /// Pasts whose caches the manifest names.
  llvm::DenseSet<const Value*> described;
  std::vector<std::pair<Value*, TensorType>> presentTypes;
};

} // namespace kvopt
