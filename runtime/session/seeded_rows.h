// Rows that replace those of a cache: from another session, or made up.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/cache/cache_file.h"
#include "runtime/cache/cache_geometry.h"
#include "runtime/memory/buffer.h"

namespace kvopt::runtime {

/// A cache whose rows are replaced, after so many tokens.
struct SeededCache {
  const ir::ManifestCache& cache;
  const CacheGeometry& geometry;
  int64_t tokens = 0;
  /// Slots of a ring of fixed extents that no step reads, because it writes them.
  int64_t spareSlots = 1;
};

/// The rows of `exported`, whose axes are those of the model before it was rewritten, as the cache
/// holds them. A usage error where they are too few, too many, or of another type.
llvm::Expected<Tensor> seededRows(const SeededCache& seeded, const TensorView& exported,
                                  const std::shared_ptr<Allocator>& allocator);

/// Made-up rows as the cache holds them: numbers in [-1, 1] that 16 bits hold exactly, and that
/// depend on the cache's name and the element's place in the exported order. Caches that keep only
/// some rows hold those of the tokens that they would hold. States are zeros.
llvm::Expected<Tensor> madeUpRows(const SeededCache& seeded,
                                  const std::shared_ptr<Allocator>& allocator);

/// Caches as if they came from a file.
class StoredRows {
public:
  void add(const CacheGeometry& geometry, Tensor rows);

  CacheFileContents contents;

private:
  std::vector<Tensor> kept;
};

} // namespace kvopt::runtime
