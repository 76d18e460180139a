// RingCache: a cache of C slots in which the row of position p lies in slot p mod C.
#pragma once

#include "runtime/attention/in_place_cache.h"

namespace kvopt::runtime {

/// A ring, and new rows of the positions from `past` on; all batch rows are equally long.
class RingCache {
public:
  /// Fails where new rows and cache do not fit each other, or the cache has no slot. Nothing is
  /// written.
  static llvm::Expected<RingCache> create(const KernelContext& context,
                                          const InPlaceCache::Operands& operands, int64_t past);

  const InPlaceCache& cache() const { return rows; }
  int64_t slotCount() const { return rows.capacity(); }
  /// Rows of the past that new ones attend to: the last C - 1, as far as there are as many.
  int64_t kept() const { return std::min(past, slotCount() - 1); }
  /// The slot of position `position`.
  int64_t slotOf(int64_t position) const { return position % slotCount(); }

  /// Kept rows and new ones, in the order of their positions, in scratch memory:
  /// [B,G,kept + S,W].
  llvm::Expected<TensorView> inOrder(KernelContext& context) const;
  /// Writes the last new rows, as many as there are slots; the present, as InPlaceCache::slots.
  llvm::Expected<TensorView> write(KernelContext& context) const;

private:
  RingCache(InPlaceCache written, int64_t length) : rows(std::move(written)), past(length) {}

  InPlaceCache rows;
  int64_t past;
};

/// The last `count` columns of a mask that broadcasts to [B,H,S,T] from the right; a mask of one
/// column as it is. Fails where it has fewer.
llvm::Expected<TensorView> lastColumns(const KernelContext& context, const TensorView& mask,
                                       int64_t count);
/// A copy, in scratch memory, of a mask of `count` columns in which the first `shift` come last.
llvm::Expected<TensorView> rotatedColumns(KernelContext& context, const TensorView& mask,
                                          int64_t shift);

} // namespace kvopt::runtime
