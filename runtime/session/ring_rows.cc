// Copies of ranges of slots.
#include "runtime/session/ring_rows.h"

#include "runtime/memory/buffer.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

bool isRing(const Session& session, size_t index) {
  const ManifestCache& cache = session.cacheInfo(index);
  return cache.oneBuffer && cache.update == CacheUpdate::Ring;
}

int64_t heldRows(const Session& session, size_t index) {
  const int64_t rows = session.exportedCacheView(index).shape[session.exportedSequenceAxis(index)];
  return isRing(session, index) ? std::min(rows, session.length()) : rows;
}

llvm::Expected<Tensor> lastRowsInOrder(const Session& session, size_t index, int64_t count) {
  const TensorView view = session.exportedCacheView(index);
  const unsigned axis = session.exportedSequenceAxis(index);
  const int64_t rows = view.shape[axis];
  assert(count <= heldRows(session, index));
  if (!isRing(session, index))
    return Tensor::copyOf(session.allocator(), sliceAxis(view, axis, rows - count, rows));
  Extents shape = view.shape;
  shape[axis] = count;
  auto result = Tensor::create(session.allocator(), view.element, shape);
  if (!result || count == 0)
    return result;
  const int64_t first = (session.length() - count) % rows;
  const int64_t beforeWrap = std::min(count, rows - first);
  copyElements(sliceAxis(view, axis, first, first + beforeWrap),
               sliceAxis(result->view, axis, 0, beforeWrap));
  copyElements(sliceAxis(view, axis, 0, count - beforeWrap),
               sliceAxis(result->view, axis, beforeWrap, count));
  return result;
}

} // namespace kvopt::runtime
