// Multidirectional (NumPy) broadcasting, and loops over several strided operands.
#pragma once

#include "runtime/exec/kernel.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <array>
#include <limits>

namespace kvopt::kernels {

/// Common shape of two shapes, aligned at their last axes; an error of the node if an extent
/// differs and neither is 1.
llvm::Expected<runtime::Extents> broadcastShape(runtime::KernelContext& context,
                                                llvm::ArrayRef<int64_t> a,
                                                llvm::ArrayRef<int64_t> b);

/// The same for the first two operands of a node, whose element types must be equal.
llvm::Expected<runtime::Extents> commonShape(runtime::KernelContext& context);

/// Strides of `view` for the shape `shape`: 0 along repeated axes. Requires that the view's shape
/// broadcasts to `shape` without changing it.
runtime::Extents broadcastStrides(const runtime::TensorView& view, llvm::ArrayRef<int64_t> shape);

/// Whether `from` broadcasts to exactly `to`.
bool broadcastsTo(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);

/// N operands with one shape, N at most 3. Merges adjacent axes that have uniform strides in every
/// operand.
template <size_t N> class StridedLoop {
public:
  using Offsets = std::array<int64_t, N>;
  /// A run of `count` elements: operand n starts at offsets[n] with stride steps[n].
  using Row = llvm::function_ref<void(const Offsets& offsets, int64_t count, const Offsets& steps)>;

  StridedLoop(llvm::ArrayRef<int64_t> shape, const std::array<runtime::Extents, N>& strides);

  /// Number of elements of the shape.
  int64_t count() const;

  /// Calls `row` for all elements, in row-major order.
  void run(Row row) const {
    if (!empty)
      run(0, std::numeric_limits<int64_t>::max(), row);
  }

  /// The same for the elements from `begin` up to, not including, `end` in row-major order, or all
  /// that follow. Requires that element `begin` exists.
  void run(int64_t begin, int64_t end, Row row) const;

private:
  struct Axis {
    int64_t extent;
    Offsets step;
  };
  bool merges(const Offsets& step, int64_t extent) const;

  llvm::SmallVector<Axis, 6> axes;
  bool empty = false;
};

/// Calls `piece(begin, end)` for ranges that together are 0 … count-1, possibly on several threads.
void forElements(runtime::KernelContext& context, int64_t count,
                 llvm::function_ref<void(int64_t begin, int64_t end)> piece);

/// Calls `row(to, offsets, count, steps)` for runs of `count` elements that together are `shape`,
/// possibly on several threads: the result's start at element `to`, and those of `a` and `b`, which
/// are broadcast to the shape, at the offsets.
using BroadcastRow = llvm::function_ref<void(int64_t to, const std::array<int64_t, 2>& offsets,
                                             int64_t count, const std::array<int64_t, 2>& steps)>;
void forBroadcastRows(runtime::KernelContext& context, llvm::ArrayRef<int64_t> shape,
                      const runtime::TensorView& a, const runtime::TensorView& b, BroadcastRow row);

/// out[i] = f(a[i], b[i]) over `shape`, with `a` and `b` broadcast to it; `out` is contiguous.
template <class Out, class A, class B, class F>
void broadcastLoop(runtime::KernelContext& context, llvm::ArrayRef<int64_t> shape,
                   const runtime::TensorView& a, const runtime::TensorView& b, Out* out, F f) {
  forBroadcastRows(context, shape, a, b,
                   [&](int64_t start, const std::array<int64_t, 2>& at, int64_t count,
                       const std::array<int64_t, 2>& by) {
                     Out* to = out + start;
                     const A* aRow = a.as<A>() + at[0];
                     const B* bRow = b.as<B>() + at[1];
                     // Common strides are separate cases, so that they are constants for the
                     // compiler.
                     if (by[0] == 1 && by[1] == 1)
                       for (int64_t i = 0; i < count; ++i)
                         to[i] = f(aRow[i], bRow[i]);
                     else if (by[0] == 1 && by[1] == 0)
                       for (int64_t i = 0; i < count; ++i)
                         to[i] = f(aRow[i], *bRow);
                     else
                       for (int64_t i = 0; i < count; ++i)
                         to[i] = f(aRow[i * by[0]], bRow[i * by[1]]);
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
