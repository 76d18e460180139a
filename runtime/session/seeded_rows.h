// Rows that replace those of a cache: from another session, or synthetic.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/cache/cache_file.h"
#include "runtime/cache/cache_geometry.h"
#include "runtime/memory/buffer.h"

namespace kvopt::runtime {

/// A cache whose rows are replaced, after a number of tokens.
struct SeededCache {
  const ir::ManifestCache& cache;
  const CacheGeometry& geometry;
  int64_t tokens = 0;
  /// Number of slots of a fixed ring that a step writes and therefore does not read.
  int64_t spareSlots = 1;
};

/// Rows of `exported`, which has the axes of the exported model, in the format of the cache. A
/// usage error if their number or type is wrong.
llvm::Expected<Tensor> seededRows(const SeededCache& seeded, const TensorView& exported,
                                  const std::shared_ptr<Allocator>& allocator);

/// Synthetic rows in the format of the cache: numbers in [-1, 1] that 16 bits represent exactly,
/// and that depend on the cache's name and the element's position in the exported order. Caches
/// that keep only some rows contain those of the tokens that they would keep. States are zeros.
llvm::Expected<Tensor> madeUpRows(const SeededCache& seeded,
                                  const std::shared_ptr<Allocator>& allocator);

/// Caches in the form of a file's contents.
class StoredRows {
public:
  void add(const CacheGeometry& geometry, Tensor rows);

  CacheFileContents contents;

private:
  std::vector<Tensor> kept;
};

} // namespace kvopt::runtime
