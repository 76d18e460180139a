// Broadcasting of shapes and strides.
#include "runtime/kernels/support/broadcast.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

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
      return context.error(formatted("shapes [{}] and [{}] do not broadcast", joinedText(a, ", "),
                                     joinedText(b, ", ")));
    shape[shape.size() - i] = aExtent == 1 ? bExtent : aExtent;
  }
  return shape;
}

llvm::Expected<Extents> commonShape(KernelContext& context) {
  const TensorView& a = context.in(0);
  const TensorView& b = context.in(1);
  if (a.element != b.element)
    return context.error("operands have different element types");
  return broadcastShape(context, a.shape, b.shape);
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

template <size_t N>
StridedLoop<N>::StridedLoop(llvm::ArrayRef<int64_t> shape, const std::array<Extents, N>& strides) {
  empty = llvm::is_contained(shape, 0);
  for (size_t axis = 0; axis < shape.size() && !empty; ++axis) {
    if (shape[axis] == 1)
      continue;
    Offsets step;
    for (size_t n = 0; n < N; ++n)
      step[n] = strides[n][axis];
    if (!axes.empty() && merges(step, shape[axis])) {
      axes.back().extent *= shape[axis];
      axes.back().step = step;
    } else {
      axes.push_back({shape[axis], step});
    }
  }
  if (axes.empty())
    axes.push_back({1, {}});
}

template <size_t N> int64_t StridedLoop<N>::count() const {
  int64_t elements = empty ? 0 : 1;
  for (const Axis& axis : axes)
    elements *= axis.extent;
  return elements;
}

template <size_t N> void StridedLoop<N>::run(int64_t begin, int64_t end, Row row) const {
  const Axis& inner = axes.back();
  std::array<int64_t, N> offsets{};
  llvm::SmallVector<int64_t, 6> index(axes.size() - 1, 0);
  int64_t skipped = begin % inner.extent, left = end - begin;
  for (int64_t axis = static_cast<int64_t>(index.size()) - 1, at = begin / inner.extent; axis >= 0;
       --axis) {
    index[axis] = at % axes[axis].extent;
    at /= axes[axis].extent;
    for (size_t n = 0; n < N; ++n)
      offsets[n] += index[axis] * axes[axis].step[n];
  }
  while (true) {
    const int64_t count = std::min(inner.extent - skipped, left);
    std::array<int64_t, N> starts = offsets;
    for (size_t n = 0; n < N; ++n)
      starts[n] += skipped * inner.step[n];
    row(starts, count, inner.step);
    skipped = 0;
    left -= count;
    if (left == 0)
      return;
    size_t axis = index.size();
    for (; axis > 0; --axis) {
      const Axis& outer = axes[axis - 1];
      if (++index[axis - 1] < outer.extent) {
        for (size_t n = 0; n < N; ++n)
          offsets[n] += outer.step[n];
        break;
      }
      for (size_t n = 0; n < N; ++n)
        offsets[n] -= outer.step[n] * (outer.extent - 1);
      index[axis - 1] = 0;
    }
    if (axis == 0)
      return;
  }
}

template <size_t N> bool StridedLoop<N>::merges(const Offsets& step, int64_t extent) const {
  for (size_t n = 0; n < N; ++n)
    if (axes.back().step[n] != step[n] * extent)
      return false;
  return true;
}

template class StridedLoop<1>;
template class StridedLoop<2>;
template class StridedLoop<3>;

void forElements(KernelContext& context, int64_t count,
                 llvm::function_ref<void(int64_t begin, int64_t end)> piece) {
  constexpr int64_t size = 8192;
  context.parallelFor(count / size + (count % size != 0), [&](int64_t index) {
    piece(index * size, std::min(count, (index + 1) * size));
  });
}

void forBroadcastRows(KernelContext& context, llvm::ArrayRef<int64_t> shape, const TensorView& a,
                      const TensorView& b, BroadcastRow row) {
  const StridedLoop<2> loop(shape, {broadcastStrides(a, shape), broadcastStrides(b, shape)});
  forElements(context, loop.count(), [&](int64_t begin, int64_t end) {
    int64_t to = begin;
    loop.run(begin, end,
             [&](const std::array<int64_t, 2>& offsets, int64_t count,
                 const std::array<int64_t, 2>& steps) {
               row(to, offsets, count, steps);
               to += count;
             });
  });
}

} // namespace kvopt::kernels
