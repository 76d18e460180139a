// RowStore: rows of one cache of a node, and the new rows that are written to it.
#pragma once

#include "ir/ops/kvopt/cache_operator.h"
#include "runtime/exec/kernel.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace kvopt::runtime {

/// Consecutive rows of a tensor, and the same number of slots of a cache.
struct RowSpan {
  int64_t first;
  int64_t slot;
  int64_t count;
};

/// Slots of a cache, as attention reads them.
struct CacheSlots {
  TensorView rows;                  ///< numbers or codes: [B,G,C,W] or, transposed, [B,G,W,C]
  std::optional<TensorView> scales; ///< scales of codes: float [B,G,C]
  bool isTransposed = false;
};

/// A contiguous cache, or one block of a cache: rows of numbers, or rows of codes with a scale for
/// each.
class RowStore {
public:
  /// The buffer or ring of `side`. Fails if new rows, cache, and scales do not fit each other.
  /// Writes nothing.
  static llvm::Expected<RowStore> create(const KernelContext& context, const ir::CacheOperator& op,
                                         unsigned side);
  /// The same for block `index` of a side with `each` blocks.
  static llvm::Expected<RowStore> ofBlock(const KernelContext& context, const ir::CacheOperator& op,
                                          unsigned side, unsigned index, unsigned each);

  /// Number of new rows.
  int64_t rows() const { return fresh->shape[2]; }
  /// Number of columns in a row.
  int64_t width() const { return fresh->shape[3]; }
  int64_t capacity() const { return past->shape[axes.slot]; }
  bool isTransposed() const { return axes.slot > axes.column; }
  /// "keys" or "values", for messages.
  const char* name() const { return side == 0 ? "keys" : "values"; }

  CacheSlots pastSlots() const { return slotsOf(*past, pastScale); }
  /// The present before any row is written to it.
  llvm::Expected<CacheSlots> present(KernelContext& context) const;
  /// `count` consecutive slots in scratch memory.
  llvm::Expected<CacheSlots> scratchSlots(KernelContext& context, int64_t count) const;

  /// New rows of a batch row that are written, and their slots.
  using SpansOf = llvm::function_ref<llvm::SmallVector<RowSpan, 2>(int64_t batch)>;
  /// Writes only the new rows to `to`. Returns the number of bytes of these rows and their scales.
  int64_t write(KernelContext& context, const CacheSlots& to, SpansOf spansOf) const;
  /// Copies the past's slots of `spans` to rows of `to`.
  void copyPast(KernelContext& context, const CacheSlots& to, llvm::ArrayRef<RowSpan> spans) const;

private:
  RowStore(const KernelContext& context, const ir::CacheOperator& which, unsigned ofSide,
           unsigned pastOperand);

  /// Element type of the cache.
  ir::ElementType held() const;
  llvm::Error check(const KernelContext& context);
  llvm::Error checkWidth(const KernelContext& context) const;
  llvm::Error readScales(const KernelContext& context, unsigned operand);
  CacheSlots slotsOf(const TensorView& cache, const TensorView* scales) const;
  /// [B,G,C,W] or, with the last axes swapped, [B,G,W,C].
  TensorView slotsOf(const TensorView& cache, bool swapsAxes) const;
  void writeCodes(const CacheSlots& to, int64_t unit, const RowSpan& span) const;

  ir::CacheOperator op;
  unsigned side;
  const TensorView* fresh;
  const TensorView* past;
  const TensorView* pastScale = nullptr;
  /// The cache's axes. Heads that are folded into the batch have the batch axis.
  struct {
    unsigned batch, head, slot, column;
  } axes{};
};

/// Fails unless the scales, those of the `name`, are float with the extents `expected`.
llvm::Error checkScales(const KernelContext& context, const char* name, const TensorView& scales,
                        const Extents& expected);

} // namespace kvopt::runtime
