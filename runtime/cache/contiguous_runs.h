// Traversal of a strided view in contiguous pieces.
#pragma once

#include "runtime/memory/tensor_view.h"

namespace kvopt::runtime {

/// Calls `visit(data, bytes)` for the elements in row-major order, in the longest contiguous
/// pieces, until it returns false. Returns whether all calls returned true.
template <class Visit> bool forEachRun(const TensorView& view, const Visit& visit) {
  int64_t count = view.elementCount();
  if (count == 0)
    return true;
  auto width = static_cast<int64_t>(*byteWidth(view.element));
  unsigned outer = view.rank();
  int64_t run = 1;
  while (outer > 0 && (view.shape[outer - 1] == 1 || view.strides[outer - 1] == run))
    run *= view.shape[--outer];
  Extents index(outer, 0);
  int64_t at = 0;
  for (int64_t done = 0; done < count; done += run) {
    if (!visit(view.data + at * width, static_cast<size_t>(run * width)))
      return false;
    for (unsigned axis = outer; axis-- > 0;) {
      at += view.strides[axis];
      if (++index[axis] < view.shape[axis])
        break;
      at -= view.strides[axis] * view.shape[axis];
      index[axis] = 0;
    }
  }
  return true;
}

} // namespace kvopt::runtime
