// Broadcasting of shapes and strides.
#include "runtime/kernels/support/broadcast.h"

#include "support/format.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace kvopt::kernels {
using namespace runtime;

llvm::Expected<Extents> broadcastShape(KernelContext& context, llvm::ArrayRef<int64_t> a,
                                       llvm::ArrayRef<int64_t> b) {
  Extents shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 1; i <= shape.size(); ++i) {
    const int64_t aExtent = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t bExtent = i <= b.size() ? b[b.size() - i] : 1;
    if (aExtent != bExtent && aExtent != 1 && bExtent != 1)
      return context.error(fmt::format("shapes [{}] and [{}] do not broadcast", fmt::join(a, ", "),
                                       fmt::join(b, ", ")));
    shape[shape.size() - i] = aExtent == 1 ? bExtent : aExtent;
  }
  return shape;
}

bool broadcastsTo(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
  if (from.size() > to.size())
    return false;
  for (size_t i = 1; i <= from.size(); ++i) {
    const int64_t extent = from[from.size() - i];
    if (extent != 1 && extent != to[to.size() - i])
      return false;
  }
  return true;
}

Extents broadcastStrides(const TensorView& view, llvm::ArrayRef<int64_t> shape) {
  assert(broadcastsTo(view.shape, shape));
  Extents strides(shape.size(), 0);
  const size_t lead = shape.size() - view.rank();
  for (size_t axis = 0; axis < view.rank(); ++axis)
    if (view.shape[axis] != 1)
      strides[lead + axis] = view.strides[axis];
  return strides;
}

} // namespace kvopt::kernels
