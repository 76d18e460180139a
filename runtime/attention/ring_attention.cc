// Attention over the last rows of a ring and the new rows, which then replace the oldest.
//
// A single token is written first, to the slot of the token that it no longer sees. The order of
// keys does not matter, so attention then reads the slots in place. Several tokens need rows that
// they overwrite: kept and new rows are copied to temporary memory in order, and written
// afterwards.
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/cache_stores.h"
#include "runtime/attention/past_lengths.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstring>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

/// Positions of rows in a ring of `slotCount` slots to which `past` tokens were written.
struct RingPositions {
  int64_t past;
  int64_t slotCount;

  /// Number of past rows that new ones attend to: the last C - 1, or fewer if the past is shorter.
  int64_t kept() const { return std::min(past, slotCount - 1); }
  /// Slot of position `position`.
  int64_t slotOf(int64_t position) const { return position % slotCount; }
  /// Slot of the oldest row that is kept.
  int64_t oldestSlot() const { return slotOf(past - kept()); }

  /// `count` rows from `first` on, in the slots from `slot` on; after the last slot, slot 0
  /// follows.
  llvm::SmallVector<RowSpan, 2> spans(int64_t first, int64_t slot, int64_t count) const {
    const int64_t beforeWrap = std::min(count, slotCount - slot);
    return {{first, slot, beforeWrap}, {first + beforeWrap, 0, count - beforeWrap}};
  }
  /// Kept rows.
  llvm::SmallVector<RowSpan, 2> keptSpans() const { return spans(0, oldestSlot(), kept()); }
  /// Destination of the last `rows` new rows, at most one per slot.
  llvm::SmallVector<RowSpan, 2> newSpans(int64_t rows) const {
    const int64_t count = std::min(rows, slotCount);
    return spans(rows - count, slotOf(past + rows - count), count);
  }
};

/// Number of earlier tokens, which is the same for all batch rows.
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

/// Fails if the ring has no slots, or if positions of new rows do not fit into 64-bit integers.
llvm::Expected<RingPositions> ringPositions(const KernelContext& context, const CacheStores& caches,
                                            int64_t past) {
  int64_t end = 0;
  if (past < 0 || __builtin_add_overflow(past, caches.rows(), &end))
    return context.error(formatted("past length {} is impossible", past));
  const int64_t keys = caches.keys().capacity(), values = caches.values().capacity();
  if (keys < 1)
    return context.error(formatted("the ring of the {} has no slot", caches.keys().name()));
  if (keys != values)
    return context.error(formatted("{} slots for keys and {} for values", keys, values));
  const RingPositions positions{past, keys};
  if (__builtin_add_overflow(positions.kept(), caches.rows(), &end))
    return context.error("the rows of the ring and the new ones do not fit into memory");
  return positions;
}

/// The last `count` columns of a mask that broadcasts to [B,H,S,T] from the right; a mask with a
/// single column is unchanged. Fails if it has fewer columns.
llvm::Expected<TensorView> lastColumns(const KernelContext& context, const TensorView& mask,
                                       int64_t count) {
  const int64_t columns = mask.rank() == 0 ? 1 : mask.shape.back();
  if (columns == 1)
    return mask;
  if (columns < count)
    return context.error(formatted("the mask has {} columns for {} keys", columns, count));
  return slicedAxis(mask, mask.rank() - 1, columns - count, count);
}

/// A copy of a mask in scratch memory, with the first `shift` columns moved to the end.
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

class RingAttention {
public:
  RingAttention(KernelContext& nodeContext, CacheStores stores, const RingPositions& where,
                AttentionOperands given)
      : context(nodeContext), caches(std::move(stores)), positions(where),
        operands(std::move(given)), attended(positions.kept() + caches.rows()) {}

  llvm::Error run() {
    if (operands.mask) {
      auto columns = lastColumns(context, *operands.mask, attended);
      if (!columns)
        return columns.takeError();
      mask = std::move(*columns);
      operands.mask = &mask;
    }
    return caches.rows() == 1 && !isNarrowed() ? single() : several();
  }

private:
  /// Whether a token sees fewer rows than the slots hold.
  bool isNarrowed() const { return operands.window != 0 && operands.window < attended; }

  llvm::Error single() {
    auto totals = scratchIntegers(context, static_cast<size_t>(operands.query.shape[0]));
    if (!totals)
      return totals.takeError();
    std::fill(totals->begin(), totals->end(), attended);
    operands.totalLengths = *totals;
    operands.causal = false;
    operands.window = 0;
    if (llvm::Error error = caches.attendToPasts(context, operands))
      return error;
    // Slot s holds the key of column (s - slot of the oldest) mod C.
    const int64_t oldest = positions.oldestSlot();
    if (operands.mask && mask.rank() != 0 && mask.shape.back() != 1 && oldest != 0) {
      auto rotated = rotatedColumns(context, mask, positions.slotCount - oldest);
      if (!rotated)
        return rotated.takeError();
      mask = std::move(*rotated);
    }
    auto output = checkedOutput();
    if (!output)
      return output.takeError();
    if (llvm::Error error = write())
      return error;
    return runAttention(context, operands, *output);
  }

  llvm::Error several() {
    if (llvm::Error error = caches.attendInOrder(context, positions.keptSpans(), operands))
      return error;
    auto output = checkedOutput();
    if (!output)
      return output.takeError();
    if (llvm::Error error = runAttention(context, operands, *output))
      return error;
    return write();
  }

  llvm::Expected<TensorView> checkedOutput() {
    if (llvm::Error error = checkAttention(context, operands))
      return error;
    return caches.output(context);
  }

  llvm::Error write() {
    return caches.write(
        context, [&](int64_t) { return positions.newSpans(caches.rows()); }, operands);
  }

  KernelContext& context;
  CacheStores caches;
  RingPositions positions;
  AttentionOperands operands;
  TensorView mask;
  int64_t attended;
};

} // namespace

llvm::Error attendInRing(KernelContext& context, const CacheOperator& op) {
  auto past = ringPastLength(context, op.pastLength());
  if (!past)
    return past.takeError();
  auto caches = CacheStores::open(context, op);
  if (!caches)
    return caches.takeError();
  auto positions = ringPositions(context, *caches, *past);
  if (!positions)
    return positions.takeError();
  auto operands = attentionOperands(context, op.mask(), op.sinks());
  if (!operands)
    return operands.takeError();
  return RingAttention(context, std::move(*caches), *positions, std::move(*operands)).run();
}

} // namespace kvopt::runtime
