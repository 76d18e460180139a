// Axes of caches, and copies.
#include "engines/onnxruntime/operators/cache_rows.h"

#include <cstring>

namespace kvopt::onnxruntime {

std::optional<CacheRows> cacheRows(const Tensor& cache, int64_t axis, int64_t batches,
                                   int64_t heads) {
  struct Axes {
    size_t batch, head, slot, column;
  };
  static constexpr Axes ofFour[] = {{1, 2, 0, 3}, {0, 2, 1, 3}, {0, 1, 2, 3}, {0, 1, 3, 2}};
  static constexpr Axes ofThree[] = {{}, {0, 0, 1, 2}, {0, 0, 2, 1}};
  const size_t rank = cache.rank();
  const bool isFolded = rank == 3;
  if ((rank != 3 && rank != 4) || axis < (isFolded ? 1 : 0) || axis >= static_cast<int64_t>(rank))
    return std::nullopt;
  const Axes& axes = isFolded ? ofThree[axis] : ofFour[axis];
  int64_t strides[4] = {};
  for (int64_t stride = 1, i = static_cast<int64_t>(rank) - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= cache.shape[static_cast<size_t>(i)];
  }
  int64_t folded = 0;
  if (isFolded ? __builtin_mul_overflow(batches, heads, &folded) || cache.shape[0] != folded
               : cache.shape[axes.batch] != batches || cache.shape[axes.head] != heads)
    return std::nullopt;
  const int64_t head = strides[axes.head];
  return CacheRows{cache.data,
                   cache.type,
                   batches,
                   heads,
                   cache.shape[axes.slot],
                   cache.shape[axes.column],
                   isFolded ? heads * head : strides[axes.batch],
                   head,
                   strides[axes.slot],
                   strides[axes.column]};
}

void copySlots(const CacheRows& to, int64_t toSlot, const CacheRows& from, int64_t fromSlot,
               int64_t count, int64_t batch, int64_t head) {
  const int64_t bytes = elementBytes(to.type);
  const bool areTogether = !to.isTransposed() && !from.isTransposed();
  if (count <= 0 || to.width == 0)
    return;
  if (areTogether && to.slotStride == to.width && from.slotStride == from.width) {
    std::memcpy(to.slot(batch, head, toSlot), from.slot(batch, head, fromSlot),
                static_cast<size_t>(count * to.width * bytes));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    std::byte* target = to.slot(batch, head, toSlot + i);
    const std::byte* source = from.slot(batch, head, fromSlot + i);
    if (areTogether) {
      std::memcpy(target, source, static_cast<size_t>(to.width * bytes));
      continue;
    }
    for (int64_t column = 0; column < to.width; ++column)
      std::memcpy(target + column * to.columnStride * bytes,
                  source + column * from.columnStride * bytes, static_cast<size_t>(bytes));
  }
}

void clearSlots(const CacheRows& rows, int64_t first, int64_t batch, int64_t head) {
  const int64_t bytes = elementBytes(rows.type);
  for (int64_t index = first; index < rows.slots; ++index) {
    std::byte* slot = rows.slot(batch, head, index);
    if (!rows.isTransposed())
      std::memset(slot, 0, static_cast<size_t>(rows.width * bytes));
    for (int64_t column = 0; rows.isTransposed() && column < rows.width; ++column)
      std::memset(slot + column * rows.columnStride * bytes, 0, static_cast<size_t>(bytes));
  }
}

} // namespace kvopt::onnxruntime
