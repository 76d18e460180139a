// RingCache: a cache of C slots in which the row of position p lies in slot p mod C.
#pragma once

#include "runtime/attention/in_place_cache.h"

#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <array>

namespace kvopt::runtime {

/// Where rows lie in a ring of `slotCount` slots that `past` tokens were written to.
struct RingPositions {
  int64_t past;
  int64_t slotCount;

  /// Rows of the past that new ones attend to: the last C - 1, as far as there are as many.
  int64_t kept() const { return std::min(past, slotCount - 1); }
  /// The slot of position `position`.
  int64_t slotOf(int64_t position) const { return position % slotCount; }
  /// The kept rows, from the first slot on and, where they wrap, from slot 0 on.
  std::array<RowSpan, 2> keptSpans() const;
  /// Where the last of `rows` new rows go, as many as there are slots.
  llvm::SmallVector<RowSpan, 2> newSpans(int64_t rows) const;
};

/// The number of earlier tokens that all batch rows have, from the operand past_length.
llvm::Expected<int64_t> ringPastLength(KernelContext& context, unsigned operand);

/// Fails where the ring has no slot, or the positions of new rows do not fit in 64-bit integers.
llvm::Expected<RingPositions> ringPositions(const KernelContext& context, const InPlaceCache& cache,
                                            const char* name, int64_t past);

/// Copies kept rows of the slots [B,G,C,W] or, transposed, [B,G,W,C] to rows [0, kept) of `joined`
/// [B,G,·,W], in the order of their positions.
void copyKept(KernelContext& context, const TensorView& slots, bool isTransposed,
              const RingPositions& positions, const TensorView& joined);

/// A ring, and new rows of the positions from `past` on; all batch rows are equally long.
class RingCache {
public:
  /// Rows as they lie, as InPlaceCache::slots, or in order.
  struct Slots {
    TensorView rows;
    bool isTransposed = false;
  };

  /// Fails where new rows and cache do not fit each other, or the cache has no slot. Nothing is
  /// written.
  static llvm::Expected<RingCache> create(const KernelContext& context,
                                          const InPlaceCache::Operands& operands, int64_t past);

  const InPlaceCache& cache() const { return rows; }
  const RingPositions& positions() const { return places; }
  Slots pastSlots() const { return {rows.pastSlots(), rows.isTransposed()}; }

  /// Kept rows and new ones, in the order of their positions, in scratch memory:
  /// [B,G,kept + S,W].
  llvm::Expected<Slots> inOrder(KernelContext& context) const;
  /// Writes the last new rows, as many as there are slots.
  llvm::Expected<Slots> write(KernelContext& context) const;

private:
  RingCache(InPlaceCache written, RingPositions positions)
      : rows(std::move(written)), places(positions) {}

  InPlaceCache rows;
  RingPositions places;
};

/// Makes attention read these keys and values.
void attendTo(const RingCache::Slots& keys, const RingCache::Slots& values,
              AttentionOperands& operands);

/// The last `count` columns of a mask that broadcasts to [B,H,S,T] from the right; a mask of one
/// column as it is. Fails where it has fewer.
llvm::Expected<TensorView> lastColumns(const KernelContext& context, const TensorView& mask,
                                       int64_t count);
/// A copy, in scratch memory, of a mask of `count` columns in which the first `shift` come last.
llvm::Expected<TensorView> rotatedColumns(KernelContext& context, const TensorView& mask,
                                          int64_t shift);

} // namespace kvopt::runtime
