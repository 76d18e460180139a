// QuantizedCache: a cache of rows of codes with a scale for each, as operators write and read it.
#pragma once

#include "runtime/attention/in_place_cache.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt::runtime {

/// Rows of codes and their scales.
struct CodeSlots {
  TensorView codes;  ///< as InPlaceCache::slots has them: [B,G,C,W] or, transposed, [B,G,W,C]
  TensorView scales; ///< [B,G,C]
  bool isTransposed = false;

  int64_t slotStride() const { return codes.strides[isTransposed ? 3 : 2]; }
  int64_t columnStride() const { return codes.strides[isTransposed ? 2 : 3]; }
};

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

  const InPlaceCache& codes() const { return cache; }
  /// The bytes of a row's codes and of its scale.
  int64_t rowBytes() const;
  CodeSlots pastSlots() const { return slotsOf(cache.pastSlots(), *pastScale); }
  /// The presents before any row is written into them.
  llvm::Expected<CodeSlots> present(KernelContext& context) const;

  /// Writes codes and scales of new rows to `slots`, those of `spansOf` for each batch row, and
  /// nothing else.
  using SpansOf = llvm::function_ref<llvm::SmallVector<RowSpan, 2>(int64_t batch)>;
  void writeRows(KernelContext& context, const CodeSlots& slots, SpansOf spansOf) const;
  /// Writes all new rows into the presents, at each batch row's length.
  llvm::Expected<CodeSlots> append(KernelContext& context, llvm::ArrayRef<int64_t> lengths) const;

private:
  QuantizedCache(InPlaceCache codes, const Operands& given, const TensorView& scale)
      : cache(std::move(codes)), operands(given), pastScale(&scale) {}
  CodeSlots slotsOf(TensorView codes, const TensorView& scales) const;
  void writeUnit(const CodeSlots& slots, int64_t unit, const RowSpan& span) const;

  InPlaceCache cache;
  Operands operands;
  const TensorView* pastScale;
};

/// Makes attention read these keys and values.
void attendTo(const CodeSlots& keys, const CodeSlots& values, AttentionOperands& operands);

} // namespace kvopt::runtime
