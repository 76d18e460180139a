// CacheStores: the caches of a node, either keys and values or rows that are both; and attention
// over each kind of cache.
#pragma once

#include "runtime/attention/attention_call.h"
#include "runtime/attention/row_store.h"

namespace kvopt::runtime {

/// Location of the values in rows of a cache: the whole row or, in latent rows, the columns
/// [v_offset, v_offset + v_width).
struct ValueColumns {
  int64_t width;    ///< in numbers
  int64_t elements; ///< in stored elements: numbers, codes, or bytes of packed codes
  int64_t first;    ///< first element within a row

  /// For rows of `columns` numbers. Fails if the values exceed the row, or begin or end within a
  /// group of four-bit codes.
  static llvm::Expected<ValueColumns> of(const KernelContext& context, const ir::CacheOperator& op,
                                         int64_t columns);
  /// Address of the values in rows [B,G,C,·].
  std::byte* beginIn(const TensorView& rows) const {
    return rows.data + first * static_cast<int64_t>(*byteWidth(rows.element));
  }
  /// Drops the other columns of the rows.
  void narrow(TensorView& rows) const {
    rows.data = beginIn(rows);
    rows.shape[3] = elements;
  }
};

/// Caches of a buffer or ring, and their new rows.
class CacheStores {
public:
  /// Fails if query, new rows and caches do not fit each other. Writes nothing.
  static llvm::Expected<CacheStores> open(const KernelContext& context,
                                          const ir::CacheOperator& op);

  /// Number of new rows.
  int64_t rows() const { return keys().rows(); }
  const RowStore& keys() const { return stores.front(); }
  const RowStore& values() const { return stores.back(); }

  /// Makes attention read the pasts in place.
  llvm::Error attendToPasts(KernelContext& context, AttentionOperands& operands) const;
  /// Makes attention read the pasts' slots of `spans`, followed by the new rows, from scratch
  /// memory.
  llvm::Error attendInOrder(KernelContext& context, llvm::ArrayRef<RowSpan> spans,
                            AttentionOperands& operands) const;
  /// Writes new rows to the presents, and makes attention read the presents.
  llvm::Error write(KernelContext& context, RowStore::SpansOf spansOf,
                    AttentionOperands& operands) const;

  /// The operator's output.
  llvm::Expected<TensorView> output(KernelContext& context) const;

private:
  explicit CacheStores(const ir::CacheOperator& which) : op(which) {}
  llvm::Error checkRows(const KernelContext& context) const;
  /// Codes that there are no kernels for are decoded.
  llvm::Error attendTo(KernelContext& context, unsigned side, CacheSlots slots,
                       AttentionOperands& operands) const;

  ir::CacheOperator op;
  llvm::SmallVector<RowStore, 2> stores; ///< one for each side
  ValueColumns columns{};
};

// Kernels of the operators for each kind of cache.

llvm::Error attendInBuffer(KernelContext& context, const ir::CacheOperator& op);
llvm::Error attendInRing(KernelContext& context, const ir::CacheOperator& op);
llvm::Error attendInBlocks(KernelContext& context, const ir::CacheOperator& op);

} // namespace kvopt::runtime
