// CacheStores: the caches of a node, which are keys and values, or rows that are both; and
// attention over caches in each place.
#pragma once

#include "runtime/attention/attention_call.h"
#include "runtime/attention/row_store.h"

namespace kvopt::runtime {

/// Where the values are in rows of a cache: everywhere or, in latent rows, in columns
/// [v_offset, v_offset + v_width).
struct ValueColumns {
  int64_t width;    ///< numbers
  int64_t elements; ///< what they are stored in: as many numbers or codes, or bytes of packed codes
  int64_t first;    ///< the first of these in a row

  /// For rows of `columns` numbers. Fails where the values are not among these, or begin or end
  /// within a group of four-bit codes.
  static llvm::Expected<ValueColumns> of(const KernelContext& context, const ir::CacheOperator& op,
                                         int64_t columns);
  /// Where they begin in rows [B,G,C,·].
  std::byte* beginIn(const TensorView& rows) const {
    return rows.data + first * static_cast<int64_t>(*byteWidth(rows.element));
  }
  /// Takes other columns from the rows.
  void narrow(TensorView& rows) const {
    rows.data = beginIn(rows);
    rows.shape[3] = elements;
  }
};

/// The caches of a buffer or ring, and the new rows for them.
class CacheStores {
public:
  /// Fails where query, new rows and caches do not fit each other. Nothing is written.
  static llvm::Expected<CacheStores> open(const KernelContext& context,
                                          const ir::CacheOperator& op);

  /// How many rows are new.
  int64_t rows() const { return keys().rows(); }
  const RowStore& keys() const { return stores.front(); }
  const RowStore& values() const { return stores.back(); }

  /// Makes attention read the pasts where they lie.
  void attendToPasts(AttentionOperands& operands) const;
  /// Makes attention read the pasts' slots of `spans`, and new rows behind them, in scratch memory.
  llvm::Error attendInOrder(KernelContext& context, llvm::ArrayRef<RowSpan> spans,
                            AttentionOperands& operands) const;
  /// Writes new rows into the presents, and makes attention read these.
  llvm::Error write(KernelContext& context, RowStore::SpansOf spansOf,
                    AttentionOperands& operands) const;

  /// The operator's output.
  llvm::Expected<TensorView> output(KernelContext& context) const;

private:
  explicit CacheStores(const ir::CacheOperator& which) : op(which) {}
  llvm::Error checkRows(const KernelContext& context) const;
  void attendTo(unsigned side, CacheSlots slots, AttentionOperands& operands) const;

  ir::CacheOperator op;
  llvm::SmallVector<RowStore, 2> stores; ///< one for each side
  ValueColumns columns{};
};

// Kernels of the operators whose caches are in one place.

llvm::Error attendInBuffer(KernelContext& context, const ir::CacheOperator& op);
llvm::Error attendInRing(KernelContext& context, const ir::CacheOperator& op);
llvm::Error attendInBlocks(KernelContext& context, const ir::CacheOperator& op);

} // namespace kvopt::runtime
