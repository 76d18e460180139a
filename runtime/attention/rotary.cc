// Tables and loops of rotary position embedding.
#include "runtime/attention/rotary.h"

#include "runtime/kernels/support/float_operand.h"
#include "runtime/memory/element_storage.h"
#include "runtime/simd/rotate_row.h"
#include "support/format.h"

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

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
        formatted("the caches rotate {} pairs of heads {} wide", table.half, width));
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
          formatted("position {} is outside of the caches' {} rows", position, table.rows));
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
  const std::optional<simd::FloatStorage> storage = storageOf(from.element);
  if (!storage)
    return context.error(formatted("element type {} is not supported", onnxName(from.element)));
  const int64_t elementBytes = *memoryWidth(from.element);
  context.parallelFor(from.shape[0] * heads, [&](int64_t unit) {
    const int64_t batch = unit / heads;
    const int64_t head = unit % heads;
    for (int64_t row = 0; row < rows; ++row) {
      const auto offset = [&](const TensorView& tensor) {
        return elementBytes *
               (batch * tensor.strides[0] + head * tensor.strides[1] + row * tensor.strides[2]);
      };
      const int64_t first = positions[static_cast<size_t>(batch * rows + row)] * table.half;
      simd::rotateRow(from.data + offset(from), to.data + offset(to), *storage, from.shape[3],
                      {table.cosine + first, table.sine + first, table.half, table.interleaved});
    }
  });
  return llvm::Error::success();
}

} // namespace kvopt::runtime
