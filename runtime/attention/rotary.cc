// Tables and loops of rotary position embedding.
#include "runtime/attention/rotary.h"

#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace kernels;

namespace {

template <class T>
void rotateRow(const T* x, T* y, const RotaryTable& table, int64_t position, int64_t width) {
  const float* cosine = table.cosine + position * table.half;
  const float* sine = table.sine + position * table.half;
  for (int64_t i = 0; i < table.half; ++i) {
    const int64_t first = table.interleaved ? 2 * i : i;
    const int64_t second = table.interleaved ? first + 1 : first + table.half;
    const float a = load(x[first]);
    const float b = load(x[second]);
    y[first] = store<T>(cosine[i] * a - sine[i] * b);
    y[second] = store<T>(sine[i] * a + cosine[i] * b);
  }
  std::copy_n(x + 2 * table.half, width - 2 * table.half, y + 2 * table.half);
}

} // namespace

llvm::Expected<RotaryTable> rotaryTable(KernelContext& context, unsigned cosine, unsigned sine,
                                        int64_t width, bool interleaved) {
  const TensorView& cosines = context.in(cosine);
  const TensorView& sines = context.in(sine);
  if (cosines.shape != sines.shape || cosines.shape.empty())
    return context.error("the caches of cosines and sines differ in shape");
  RotaryTable table;
  table.half = cosines.shape.back();
  table.interleaved = interleaved;
  if (table.half > width / 2)
    return context.error(
        fmt::format("the caches rotate {} pairs of heads {} wide", table.half, width));
  table.rows = table.half == 0 ? 0 : cosines.elementCount() / table.half;
  auto cosineFloats = floatsOf(context, cosines);
  if (!cosineFloats)
    return cosineFloats.takeError();
  auto sineFloats = floatsOf(context, sines);
  if (!sineFloats)
    return sineFloats.takeError();
  table.cosine = *cosineFloats;
  table.sine = *sineFloats;
  return table;
}

llvm::Error checkPositions(const KernelContext& context, const RotaryTable& table,
                           llvm::ArrayRef<int64_t> positions) {
  for (int64_t position : positions)
    if (table.half != 0 && (position < 0 || position >= table.rows))
      return context.error(
          fmt::format("position {} is outside of the caches' {} rows", position, table.rows));
  return llvm::Error::success();
}

llvm::Error rotateHeads(KernelContext& context, const TensorView& from, const TensorView& to,
                        const RotaryTable& table, llvm::ArrayRef<int64_t> positions) {
  assert(from.shape == to.shape && from.element == to.element && from.rank() == 4);
  if (from.elementCount() == 0)
    return llvm::Error::success();
  const int64_t heads = from.shape[1];
  const int64_t rows = from.shape[2];
  assert(static_cast<int64_t>(positions.size()) == from.shape[0] * rows);
  return dispatch(TypeList<float, Float16, BFloat16>(), context, from.element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    context.parallelFor(from.shape[0] * heads, [&](int64_t unit) {
      const int64_t batch = unit / heads;
      const int64_t head = unit % heads;
      const T* x = from.as<T>() + batch * from.strides[0] + head * from.strides[1];
      T* y = to.as<T>() + batch * to.strides[0] + head * to.strides[1];
      for (int64_t row = 0; row < rows; ++row)
        rotateRow(x + row * from.strides[2], y + row * to.strides[2], table,
                  positions[static_cast<size_t>(batch * rows + row)], from.shape[3]);
    });
    return llvm::Error::success();
  });
}

} // namespace kvopt::runtime
