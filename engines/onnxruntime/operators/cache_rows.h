// Rows of ai.kvopt's caches: layouts, and copies between rows of any layout.
#pragma once

#include "engines/onnxruntime/call.h"

namespace kvopt::onnxruntime {

/// Rows of a cache, or their scales with width 1, in any layout. Strides are in elements.
struct CacheRows {
  std::byte* data = nullptr;
  ElementType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  int64_t batches = 0;
  int64_t heads = 0;
  int64_t slots = 0;
  int64_t width = 0; ///< in elements
  int64_t batchStride = 0;
  int64_t headStride = 0;
  int64_t slotStride = 0;
  int64_t columnStride = 0;

  bool isTransposed() const { return columnStride != 1 && width > 1; }
  std::byte* slot(int64_t batch, int64_t head, int64_t index) const {
    return data +
           elementBytes(type) * (batch * batchStride + head * headStride + index * slotStride);
  }
  simd::RowStrides strides() const { return {batchStride, headStride, slotStride}; }
};

/// Rows of a cache tensor whose sequence is on `axis`: of rank 4, [S,B,G,W], [B,S,G,W], [B,G,S,W]
/// or [B,G,W,S]; of rank 3, [B*G,S,W] or [B*G,W,S]. nullopt for other tensors, and if batch rows or
/// heads do not fit.
std::optional<CacheRows> cacheRows(const Tensor& cache, int64_t axis, int64_t batches,
                                   int64_t heads);

/// Copies `count` slots of one batch row and head between rows of equal width and element type.
void copySlots(const CacheRows& to, int64_t toSlot, const CacheRows& from, int64_t fromSlot,
               int64_t count, int64_t batch, int64_t head);

/// Sets slots from `first` on to zero.
void clearSlots(const CacheRows& rows, int64_t first, int64_t batch, int64_t head);

} // namespace kvopt::onnxruntime
