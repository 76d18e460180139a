// Reading a ring in the order of positions, and writing to it.
#include "runtime/attention/ring_cache.h"

#include "runtime/attention/attention_heads.h"
#include "support/format.h"

#include <cstring>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

/// Copies the rows of one batch row and head.
class RowCopy {
public:
  RowCopy(const TensorView& slots, bool isTransposed)
      : slotStride(slots.strides[isTransposed ? 3 : 2]),
        columnStride(slots.strides[isTransposed ? 2 : 3]), width(slots.shape[isTransposed ? 2 : 3]),
        elementBytes(static_cast<int64_t>(*byteWidth(slots.element))) {}

  /// `count` rows from slot `slot` on, one behind the other.
  void run(std::byte* to, const std::byte* slots, int64_t slot, int64_t count) const {
    const std::byte* from = slots + slot * slotStride * elementBytes;
    if (columnStride == 1 && slotStride == width)
      return copy(to, from, count * width);
    for (int64_t row = 0; row < count; ++row, from += slotStride * elementBytes)
      if (columnStride == 1) {
        copy(to, from, width);
        to += width * elementBytes;
      } else {
        for (int64_t column = 0; column < width; ++column, to += elementBytes)
          copy(to, from + column * columnStride * elementBytes, 1);
      }
  }

private:
  void copy(std::byte* to, const std::byte* from, int64_t elements) const {
    if (elements != 0)
      std::memcpy(to, from, static_cast<size_t>(elements * elementBytes));
  }

  int64_t slotStride;
  int64_t columnStride;
  int64_t width;
  int64_t elementBytes;
};

} // namespace

llvm::Expected<RingCache> RingCache::create(const KernelContext& context,
                                            const InPlaceCache::Operands& operands, int64_t past) {
  auto cache = InPlaceCache::create(context, operands);
  if (!cache)
    return cache.takeError();
  int64_t end = 0;
  if (past < 0 || __builtin_add_overflow(past, cache->rows(), &end))
    return context.error(fmt::format("past length {} is impossible", past));
  if (cache->capacity() < 1)
    return context.error(fmt::format("the ring of the {} has no slot", operands.name));
  return RingCache(std::move(*cache), past);
}

llvm::Expected<TensorView> RingCache::inOrder(KernelContext& context) const {
  const TensorView& fresh = rows.freshRows();
  const TensorView slots = rows.pastSlots();
  int64_t count = 0;
  if (__builtin_add_overflow(kept(), rows.rows(), &count))
    return context.error("the rows of the ring and the new ones do not fit into memory");
  auto joined =
      scratchTensor(context, fresh.element, {fresh.shape[0], fresh.shape[1], count, rows.width()});
  if (!joined || joined->elementCount() == 0)
    return joined;
  const auto elementBytes = static_cast<int64_t>(*byteWidth(fresh.element));
  const int64_t rowBytes = rows.width() * elementBytes;
  const RowCopy copy(slots, rows.isTransposed());
  const int64_t first = slotOf(past - kept());
  const int64_t beforeWrap = std::min(kept(), slotCount() - first);
  context.parallelFor(fresh.shape[0] * fresh.shape[1], [&](int64_t unit) {
    const int64_t batch = unit / fresh.shape[1];
    const int64_t head = unit % fresh.shape[1];
    std::byte* to = joined->data + unit * count * rowBytes;
    const std::byte* from =
        slots.data + (batch * slots.strides[0] + head * slots.strides[1]) * elementBytes;
    copy.run(to, from, first, beforeWrap);
    copy.run(to + beforeWrap * rowBytes, from, 0, kept() - beforeWrap);
    if (rows.rows() != 0)
      std::memcpy(to + kept() * rowBytes,
                  fresh.data + (batch * fresh.strides[0] + head * fresh.strides[1]) * elementBytes,
                  static_cast<size_t>(rows.rows() * rowBytes));
  });
  return joined;
}

llvm::Expected<TensorView> RingCache::write(KernelContext& context) const {
  auto present = rows.present(context);
  if (!present)
    return present;
  const int64_t count = std::min(rows.rows(), slotCount());
  const int64_t first = rows.rows() - count;
  const int64_t slot = slotOf(past + first);
  const int64_t beforeWrap = std::min(count, slotCount() - slot);
  for (int64_t batch = 0; batch < rows.freshRows().shape[0]; ++batch) {
    rows.writeRows(*present, batch, first, slot, beforeWrap);
    rows.writeRows(*present, batch, first + beforeWrap, 0, count - beforeWrap);
  }
  if (rows.rows() != 0)
    context.noteCacheWrite(rows.freshRows().byteSize() / rows.rows() * count);
  return present;
}

llvm::Expected<TensorView> lastColumns(const KernelContext& context, const TensorView& mask,
                                       int64_t count) {
  const int64_t columns = mask.rank() == 0 ? 1 : mask.shape.back();
  if (columns == 1)
    return mask;
  if (columns < count)
    return context.error(fmt::format("the mask has {} columns for {} keys", columns, count));
  TensorView result = mask;
  result.shape.back() = count;
  result.data +=
      (columns - count) * mask.strides.back() * static_cast<int64_t>(*byteWidth(mask.element));
  return result;
}

llvm::Expected<TensorView> rotatedColumns(KernelContext& context, const TensorView& mask,
                                          int64_t shift) {
  auto rotated = scratchTensor(context, mask.element, mask.shape);
  if (!rotated || rotated->elementCount() == 0)
    return rotated;
  const auto elementBytes = static_cast<int64_t>(*byteWidth(mask.element));
  const int64_t columns = mask.shape.back();
  std::byte* to = rotated->data;
  Extents index(mask.rank(), 0);
  for (int64_t row = 0; row < rotated->elementCount() / columns; ++row) {
    const std::byte* from = mask.data;
    for (unsigned axis = 0; axis + 1 < mask.rank(); ++axis)
      from += index[axis] * mask.strides[axis] * elementBytes;
    for (int64_t column = 0; column < columns; ++column, to += elementBytes)
      std::memcpy(to, from + (column + shift) % columns * mask.strides.back() * elementBytes,
                  static_cast<size_t>(elementBytes));
    for (unsigned axis = mask.rank() - 1; axis-- > 0 && ++index[axis] == mask.shape[axis];)
      index[axis] = 0;
  }
  return rotated;
}

} // namespace kvopt::runtime
