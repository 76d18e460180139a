// Reading a ring in the order of positions, and writing to it.
#include "runtime/attention/ring_cache.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/attention/past_lengths.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

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

llvm::Expected<int64_t> ringPastLength(KernelContext& context, unsigned operand) {
  if (context.in(0).rank() != 4)
    return context.error("the query must have rank 4");
  auto lengths = pastLengths(context, operand, context.in(0).shape[0]);
  if (!lengths)
    return lengths.takeError();
  if (lengths->empty())
    return 0;
  if (llvm::any_of(*lengths, [&](int64_t length) { return length != lengths->front(); }))
    return context.error("batch rows of different lengths do not share a ring");
  return lengths->front();
}

std::array<RowSpan, 2> RingPositions::keptSpans() const {
  const int64_t first = slotOf(past - kept());
  const int64_t beforeWrap = std::min(kept(), slotCount - first);
  return {{{0, first, beforeWrap}, {beforeWrap, 0, kept() - beforeWrap}}};
}

llvm::SmallVector<RowSpan, 2> RingPositions::newSpans(int64_t rows) const {
  const int64_t count = std::min(rows, slotCount);
  const int64_t first = rows - count;
  const int64_t slot = slotOf(past + first);
  const int64_t beforeWrap = std::min(count, slotCount - slot);
  return {{first, slot, beforeWrap}, {first + beforeWrap, 0, count - beforeWrap}};
}

llvm::Expected<RingPositions> ringPositions(const KernelContext& context, const InPlaceCache& cache,
                                            const char* name, int64_t past) {
  int64_t end = 0;
  if (past < 0 || __builtin_add_overflow(past, cache.rows(), &end))
    return context.error(fmt::format("past length {} is impossible", past));
  if (cache.capacity() < 1)
    return context.error(fmt::format("the ring of the {} has no slot", name));
  const RingPositions positions{past, cache.capacity()};
  if (__builtin_add_overflow(positions.kept(), cache.rows(), &end))
    return context.error("the rows of the ring and the new ones do not fit into memory");
  return positions;
}

void copyKept(KernelContext& context, const TensorView& slots, bool isTransposed,
              const RingPositions& positions, const TensorView& joined) {
  const auto elementBytes = static_cast<int64_t>(*byteWidth(slots.element));
  const RowCopy copy(slots, isTransposed);
  context.parallelFor(joined.shape[0] * joined.shape[1], [&](int64_t unit) {
    const int64_t batch = unit / joined.shape[1], head = unit % joined.shape[1];
    std::byte* to =
        joined.data + (batch * joined.strides[0] + head * joined.strides[1]) * elementBytes;
    const std::byte* from =
        slots.data + (batch * slots.strides[0] + head * slots.strides[1]) * elementBytes;
    for (const auto& [row, slot, count] : positions.keptSpans())
      copy.run(to + row * joined.strides[2] * elementBytes, from, slot, count);
  });
}

llvm::Expected<RingCache> RingCache::create(const KernelContext& context,
                                            const InPlaceCache::Operands& operands, int64_t past) {
  auto cache = InPlaceCache::create(context, operands);
  if (!cache)
    return cache.takeError();
  auto positions = ringPositions(context, *cache, operands.name, past);
  if (!positions)
    return positions.takeError();
  return RingCache(std::move(*cache), *positions);
}

llvm::Expected<RingCache::Slots> RingCache::inOrder(KernelContext& context) const {
  const TensorView& fresh = rows.freshRows();
  const int64_t kept = places.kept();
  auto joined = scratchTensor(context, fresh.element,
                              {fresh.shape[0], fresh.shape[1], kept + rows.rows(), rows.width()});
  if (!joined)
    return joined.takeError();
  if (joined->elementCount() == 0)
    return Slots{std::move(*joined)};
  copyKept(context, rows.pastSlots(), rows.isTransposed(), places, *joined);
  const int64_t rowBytes = rows.width() * int64_t{*byteWidth(fresh.element)};
  const int64_t freshBytes = rows.rows() * rowBytes;
  if (freshBytes != 0)
    context.parallelFor(fresh.shape[0] * fresh.shape[1], [&](int64_t unit) {
      std::memcpy(joined->data + unit * (kept + rows.rows()) * rowBytes + kept * rowBytes,
                  fresh.data + unit * freshBytes, static_cast<size_t>(freshBytes));
    });
  return Slots{std::move(*joined)};
}

llvm::Expected<RingCache::Slots> RingCache::write(KernelContext& context) const {
  auto present = rows.present(context);
  if (!present)
    return present.takeError();
  const TensorView& fresh = rows.freshRows();
  for (int64_t batch = 0; batch < fresh.shape[0]; ++batch)
    for (const RowSpan& span : places.newSpans(rows.rows()))
      rows.writeRows(*present, batch, span);
  if (rows.rows() != 0)
    context.noteCacheWrite(fresh.byteSize() / rows.rows() *
                           std::min(rows.rows(), places.slotCount));
  return Slots{std::move(*present), rows.isTransposed()};
}

void attendTo(const RingCache::Slots& keys, const RingCache::Slots& values,
              AttentionOperands& operands) {
  operands.key = keys.rows;
  operands.keyTransposed = keys.isTransposed;
  operands.value = values.rows;
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
