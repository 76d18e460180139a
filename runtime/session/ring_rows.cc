// Copies of ranges of slots.
#include "runtime/session/ring_rows.h"

#include "runtime/memory/buffer.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

int64_t slotCount(const CacheState& caches, size_t index) {
  const CacheGeometry& geometry = caches.set().geometry(index);
  return geometry.hasRowPerToken() ? caches.length()
                                   : caches.set().buffer(index).shape[geometry.sequenceAxis()];
}

int64_t heldRows(const CacheState& caches, size_t index) {
  const int64_t rows = slotCount(caches, index);
  return isRing(caches, index) ? std::min(rows, caches.length()) : rows;
}

llvm::Expected<Tensor> lastRowsInOrder(const CacheState& caches, size_t index, int64_t count) {
  llvm::Expected<Tensor> held = caches.exportedRows(index);
  if (!held)
    return held;
  const TensorView& view = held->view;
  const unsigned axis = caches.exportedSequenceAxis(index);
  const int64_t rows = view.shape[axis];
  assert(count <= heldRows(caches, index));
  if (!isRing(caches, index))
    return Tensor::copyOf(caches.allocator(), sliceAxis(view, axis, rows - count, rows));
  Extents shape = view.shape;
  shape[axis] = count;
  auto result = Tensor::create(caches.allocator(), view.element, shape);
  if (!result || count == 0)
    return result;
  const int64_t first = (caches.length() - count) % rows;
  const int64_t beforeWrap = std::min(count, rows - first);
  copyElements(sliceAxis(view, axis, first, first + beforeWrap),
               sliceAxis(result->view, axis, 0, beforeWrap));
  copyElements(sliceAxis(view, axis, 0, count - beforeWrap),
               sliceAxis(result->view, axis, beforeWrap, count));
  return result;
}

} // namespace kvopt::runtime
