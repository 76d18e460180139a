// QuantizedRing: a ring (ring_cache.h) of rows of codes with a scale for each.
#pragma once

#include "runtime/attention/quantized_cache.h"
#include "runtime/attention/ring_cache.h"

namespace kvopt::runtime {

/// RingCache over a QuantizedCache.
class QuantizedRing {
public:
  using Slots = CodeSlots;

  /// Fails where new rows, cache and scales do not fit each other, or the cache has no slot.
  /// Nothing is written.
  static llvm::Expected<QuantizedRing>
  create(const KernelContext& context, const QuantizedCache::Operands& operands, int64_t past);

  const InPlaceCache& cache() const { return rows.codes(); }
  const RingPositions& positions() const { return places; }
  Slots pastSlots() const { return rows.pastSlots(); }

  /// Codes and scales of the kept rows and of the new ones, in the order of their positions, in
  /// scratch memory: [B,G,kept + S,W].
  llvm::Expected<Slots> inOrder(KernelContext& context) const;
  /// Writes the last new rows, as many as there are slots.
  llvm::Expected<Slots> write(KernelContext& context) const;

private:
  QuantizedRing(QuantizedCache written, RingPositions positions)
      : rows(std::move(written)), places(positions) {}

  QuantizedCache rows;
  RingPositions places;
};

} // namespace kvopt::runtime
