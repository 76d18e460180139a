// QuantizedCache: a cache of rows of codes with a scale for each, as operators write and read it.
#pragma once

#include "runtime/attention/in_place_cache.h"

namespace kvopt::runtime {

/// One cache of a node, its scales and the rows that are written into them.
class QuantizedCache {
public:
  struct Operands {
    InPlaceCache::Operands codes;
    unsigned pastScale;    ///< operand: float, of the cache's extents with one column
    unsigned presentScale; ///< result
  };

  /// Fails where new rows, cache and scales do not fit each other. Nothing is written.
  static llvm::Expected<QuantizedCache> create(const KernelContext& context,
                                               const Operands& operands);

  /// Codes as InPlaceCache::slots has them, scales as [B,G,C].
  struct Slots {
    TensorView codes;
    TensorView scales;
  };

  const InPlaceCache& codes() const { return cache; }
  Slots pastSlots() const { return {cache.pastSlots(), scaleSlots(*pastScale)}; }

  /// Writes codes and scales of the new rows at each batch row's length, and nothing else.
  llvm::Expected<Slots> append(KernelContext& context, llvm::ArrayRef<int64_t> lengths) const;

private:
  QuantizedCache(InPlaceCache codes, const Operands& given, const TensorView& scale)
      : cache(std::move(codes)), operands(given), pastScale(&scale) {}
  TensorView scaleSlots(const TensorView& scales) const;

  InPlaceCache cache;
  Operands operands;
  const TensorView* pastScale;
};

} // namespace kvopt::runtime
