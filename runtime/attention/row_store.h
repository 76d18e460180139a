// RowStore: the rows of one cache of a node, and the new ones that are written into it.
#pragma once

#include "ir/ops/kvopt/cache_operator.h"
#include "runtime/exec/kernel.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace kvopt::runtime {

/// Some rows in a tensor of rows, and as many slots of a cache.
struct RowSpan {
  int64_t first;
  int64_t slot;
  int64_t count;
};

/// The slots of a cache as attention reads them.
struct CacheSlots {
  TensorView rows;                  ///< numbers or codes: [B,G,C,W] or, transposed, [B,G,W,C]
  std::optional<TensorView> scales; ///< of codes: float [B,G,C]
  bool isTransposed = false;
};

/// A cache in one piece, or one block of a cache: rows of numbers, or rows of codes with a scale
/// for each.
class RowStore {
public:
  /// The buffer or ring of `side`. Fails where new rows, cache, and scales do not fit each other.
  /// Nothing is written.
  static llvm::Expected<RowStore> create(const KernelContext& context, const ir::CacheOperator& op,
                                         unsigned side);
  /// The same for block `index` of the `each` of a side.
  static llvm::Expected<RowStore> ofBlock(const KernelContext& context, const ir::CacheOperator& op,
                                          unsigned side, unsigned index, unsigned each);

  /// How many rows are new.
  int64_t rows() const { return fresh->shape[2]; }
  /// Numbers in a row.
  int64_t width() const { return fresh->shape[3]; }
  int64_t capacity() const { return past->shape[axes.slot]; }
  bool isTransposed() const { return axes.slot > axes.column; }
  /// "keys" or "values", for messages.
  const char* name() const { return side == 0 ? "keys" : "values"; }

  CacheSlots pastSlots() const { return slotsOf(*past, pastScale); }
  /// The present before any row is written into it.
  llvm::Expected<CacheSlots> present(KernelContext& context) const;
  /// `count` slots, one after the other, in scratch memory.
  llvm::Expected<CacheSlots> scratchSlots(KernelContext& context, int64_t count) const;

  /// The new rows of a batch row that are written, and where.
  using SpansOf = llvm::function_ref<llvm::SmallVector<RowSpan, 2>(int64_t batch)>;
  /// Writes new rows to `to`, and nothing else. Returns the bytes of these rows and their scales.
  int64_t write(KernelContext& context, const CacheSlots& to, SpansOf spansOf) const;
  /// Copies the past's slots of `spans` to rows of `to`.
  void copyPast(KernelContext& context, const CacheSlots& to, llvm::ArrayRef<RowSpan> spans) const;

private:
  RowStore(const KernelContext& context, const ir::CacheOperator& which, unsigned ofSide,
           unsigned pastOperand);

  /// What the cache holds.
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
  /// The cache's axes. Heads that are folded into the batch share its axis.
  struct {
    unsigned batch, head, slot, column;
  } axes{};
};

/// Fails where scales, those of the `name`, are not float of the extents `expected`.
llvm::Error checkScales(const KernelContext& context, const char* name, const TensorView& scales,
                        const Extents& expected);

} // namespace kvopt::runtime
