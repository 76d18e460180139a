// CacheGeometry: what the axes of one cache of a session are.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/memory/tensor_view.h"

namespace kvopt::runtime {

/// Extents of a tensor of a manifest for `batch` rows. Whatever is symbolic counts batch rows:
/// `batch`, or `batch*heads` where the two are folded. Extents that cannot be resolved are an
/// error. The axis `rowsAxis`, if given, gets `rows`.
llvm::Expected<Extents> manifestExtents(llvm::ArrayRef<ir::ManifestExtent> shape, int64_t batch,
                                        std::optional<unsigned> rowsAxis = std::nullopt,
                                        int64_t rows = 0);

/// The place of tokens and of batch rows in a cache.
struct CacheGeometry {
  std::string name; ///< of the model's input
  ir::ElementType element = ir::ElementType::Float;
  ir::CacheUpdate update = ir::CacheUpdate::Grows;
  /// Past and present are one buffer with room for more rows than are used.
  bool isShared = false;
  /// Past and present are one buffer: what a step writes is written there.
  bool isOverwritten = false;
  /// Where the sequence lies and, as far as the manifest tells, the batch.
  ir::CacheLayout layout;
  /// Batch row r is the slices [r * slicesPerRow, (r + 1) * slicesPerRow) of the batch axis.
  int64_t slicesPerRow = 1;
  int64_t batch = 1;
  /// All but that of the sequence axis, which is 0.
  Extents extents;
  /// Rows before the first step, of a cache that is not shared: 0 where the cache grows.
  int64_t initialRows = 0;
  /// Its rows are what the codes of another cache are multiplied by.
  bool holdsScales = false;
  /// Rows that a growing ring keeps; 0 where the manifest does not tell.
  int64_t window = 0;

  /// `openRows` stands for the rows of a static cache whose number the manifest leaves open.
  static llvm::Expected<CacheGeometry> create(const ir::ManifestCache& cache, int64_t batch,
                                              int64_t openRows);

  unsigned sequenceAxis() const { return layout.sequenceAxis(); }
  std::optional<unsigned> batchAxis() const { return layout.axisOf('B'); }
  Extents shape(int64_t rows) const;
  /// Row i along the sequence axis belongs to token i, and rows beyond the last token mean nothing.
  bool hasRowPerToken() const { return update == ir::CacheUpdate::Grows || isInBlocks(); }
  /// One buffer of fixed extents in which the row of position p is in slot p mod C.
  bool isFixedRing() const { return isOverwritten && update == ir::CacheUpdate::Ring; }
  /// Its rows lie in the blocks of a pool.
  bool isInBlocks() const { return update == ir::CacheUpdate::Blocks; }
  /// The part of a tensor of this geometry that is one batch row's. The batch axis must be known,
  /// unless there is one row only.
  TensorView batchRow(const TensorView& tensor, int64_t row) const;
};

} // namespace kvopt::runtime
