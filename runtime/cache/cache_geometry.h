// CacheGeometry: meaning of the axes of one cache of a session.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/memory/tensor_view.h"

#include <vector>

namespace kvopt::runtime {

/// Extents of a tensor of a manifest for `batch` rows. Symbols count batch rows: `batch`, or
/// `batch*heads` if heads are folded into the batch. Extents that cannot be resolved are an error.
/// The axis `rowsAxis`, if given, has the extent `rows`.
llvm::Expected<Extents> manifestExtents(llvm::ArrayRef<ir::ManifestExtent> shape, int64_t batch,
                                        std::optional<unsigned> rowsAxis = std::nullopt,
                                        int64_t rows = 0);

/// Axes of tokens and of batch rows in a cache.
struct CacheGeometry {
  std::string name; ///< name of the model's input
  ir::ElementType element = ir::ElementType::Float;
  ir::CacheUpdate update = ir::CacheUpdate::Grows;
  /// Whether past and present share a buffer with room for additional rows.
  bool isShared = false;
  /// Whether past and present share a buffer, which each step overwrites.
  bool isOverwritten = false;
  /// Layout, with the sequence axis and, as far as the manifest determines it, the batch axis.
  ir::CacheLayout layout;
  /// Batch row r is the slices [r * slicesPerRow, (r + 1) * slicesPerRow) of the batch axis.
  int64_t slicesPerRow = 1;
  int64_t batch = 1;
  /// All extents. That of the sequence axis is 0.
  Extents extents;
  /// Number of rows before the first step, of a cache that is not shared; 0 for a growing cache.
  int64_t initialRows = 0;
  /// Contents before the first step, repeated over all elements; empty: zeros.
  std::vector<double> initial;
  /// Whether its rows are multipliers of the codes of another cache.
  bool holdsScales = false;
  /// Number of rows that a growing ring keeps; 0 if the manifest does not specify it.
  int64_t window = 0;

  /// `openRows` is the number of rows of a static cache if the manifest does not specify it.
  static llvm::Expected<CacheGeometry> create(const ir::ManifestCache& cache, int64_t batch,
                                              int64_t openRows);

  unsigned sequenceAxis() const { return layout.sequenceAxis(); }
  std::optional<unsigned> batchAxis() const { return layout.axisOf('B'); }
  Extents shape(int64_t rows) const;
  /// Whether row i along the sequence axis belongs to token i, and later rows are unused.
  bool hasRowPerToken() const { return update == ir::CacheUpdate::Grows || isInBlocks(); }
  /// Whether this is a buffer of fixed extents in which the row of position p is in slot p mod C.
  bool isFixedRing() const { return isOverwritten && update == ir::CacheUpdate::Ring; }
  /// Whether its rows are in the blocks of a pool.
  bool isInBlocks() const { return update == ir::CacheUpdate::Blocks; }
  /// Part of a tensor with this geometry that belongs to one batch row. The batch axis must be
  /// known, unless there is only one row.
  TensorView batchRow(const TensorView& tensor, int64_t row) const;
};

} // namespace kvopt::runtime
