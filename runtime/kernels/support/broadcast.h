// Multidirectional (NumPy) broadcasting, and loops over several strided operands.
#pragma once

#include "runtime/exec/kernel.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <limits>

namespace kvopt::kernels {

/// Common shape of two shapes, aligned at their last axes; an error of the node if an extent
/// differs and neither is 1.
llvm::Expected<runtime::Extents> broadcastShape(runtime::KernelContext& context,
                                                llvm::ArrayRef<int64_t> a,
                                                llvm::ArrayRef<int64_t> b);

/// Strides of `view` for the shape `shape`: 0 along repeated axes. Requires that the view's shape
/// broadcasts to `shape` without changing it.
runtime::Extents broadcastStrides(const runtime::TensorView& view, llvm::ArrayRef<int64_t> shape);

/// Whether `from` broadcasts to exactly `to`.
bool broadcastsTo(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);

/// N operands with one shape. Merges adjacent axes that have uniform strides in every operand.
template <size_t N> class StridedLoop {
public:
  StridedLoop(llvm::ArrayRef<int64_t> shape, const std::array<runtime::Extents, N>& strides) {
    empty = llvm::is_contained(shape, 0);
    for (size_t axis = 0; axis < shape.size() && !empty; ++axis) {
      if (shape[axis] == 1)
        continue;
      std::array<int64_t, N> step;
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

  /// Number of elements of the shape.
  int64_t count() const {
    int64_t elements = empty ? 0 : 1;
    for (const Axis& axis : axes)
      elements *= axis.extent;
    return elements;
  }

  /// Calls `row(offsets, count, steps)` for runs of `count` elements: operand n starts at
  /// offsets[n] with stride steps[n]. Runs are in row-major order.
  template <class Row> void run(Row&& row) const {
    if (!empty)
      run(0, std::numeric_limits<int64_t>::max(), row);
  }

  /// The same for the elements from `begin` up to, not including, `end` in row-major order, or all
  /// that follow. Requires that element `begin` exists.
  template <class Row> void run(int64_t begin, int64_t end, Row&& row) const {
    const Axis& inner = axes.back();
    std::array<int64_t, N> offsets{};
    llvm::SmallVector<int64_t, 6> index(axes.size() - 1, 0);
    int64_t skipped = begin % inner.extent, left = end - begin;
    for (int64_t axis = static_cast<int64_t>(index.size()) - 1, at = begin / inner.extent;
         axis >= 0; --axis) {
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

private:
  struct Axis {
    int64_t extent;
    std::array<int64_t, N> step;
  };
  bool merges(const std::array<int64_t, N>& step, int64_t extent) const {
    for (size_t n = 0; n < N; ++n)
      if (axes.back().step[n] != step[n] * extent)
        return false;
    return true;
  }

  llvm::SmallVector<Axis, 6> axes;
  bool empty = false;
};

/// Calls `piece(begin, end)` for ranges that together are 0 … count-1, possibly on several threads.
template <class Piece>
void forElements(runtime::KernelContext& context, int64_t count, Piece&& piece) {
  constexpr int64_t size = 8192;
  context.parallelFor(count / size + (count % size != 0), [&](int64_t index) {
    piece(index * size, std::min(count, (index + 1) * size));
  });
}

/// out[i] = f(a[i], b[i]) over `shape`, with `a` and `b` broadcast to it; `out` is contiguous.
template <class Out, class A, class B, class F>
void broadcastLoop(runtime::KernelContext& context, llvm::ArrayRef<int64_t> shape,
                   const runtime::TensorView& a, const runtime::TensorView& b, Out* out, F f) {
  const A* aData = a.as<A>();
  const B* bData = b.as<B>();
  const StridedLoop<2> loop(shape, {broadcastStrides(a, shape), broadcastStrides(b, shape)});
  forElements(context, loop.count(), [&](int64_t begin, int64_t end) {
    Out* to = out + begin;
    loop.run(
        begin, end,
        [&](const std::array<int64_t, 2>& at, int64_t count, const std::array<int64_t, 2>& by) {
          const A* aRow = aData + at[0];
          const B* bRow = bData + at[1];
          // Common strides are separate cases, so that they are constants for the compiler.
          if (by[0] == 1 && by[1] == 1)
            for (int64_t i = 0; i < count; ++i)
              to[i] = f(aRow[i], bRow[i]);
          else if (by[0] == 1 && by[1] == 0)
            for (int64_t i = 0; i < count; ++i)
              to[i] = f(aRow[i], *bRow);
          else
            for (int64_t i = 0; i < count; ++i)
              to[i] = f(aRow[i * by[0]], bRow[i * by[1]]);
          to += count;
        });
  });
}

/// Copies elements `begin` up to `end` of the loop over `source` to contiguous `out`.
template <class T>
void copyRange(const StridedLoop<1>& loop, int64_t begin, int64_t end, const T* source, T* out) {
  loop.run(begin, end,
           [&](const std::array<int64_t, 1>& at, int64_t count, const std::array<int64_t, 1>& by) {
             const T* row = source + at[0];
             if (by[0] == 1)
               std::copy_n(row, count, out);
             else
               for (int64_t i = 0; i < count; ++i)
                 out[i] = row[i * by[0]];
             out += count;
           });
}

/// Copies `source`, traversed by `strides` with the shape `shape`, to contiguous `out`.
template <class T>
void copyStrided(llvm::ArrayRef<int64_t> shape, const runtime::Extents& strides, const T* source,
                 T* out) {
  const StridedLoop<1> loop(shape, {strides});
  if (loop.count() != 0)
    copyRange(loop, 0, loop.count(), source, out);
}

} // namespace kvopt::kernels
