// InPlaceCache: the part that operators with a cache of fixed capacity share: checks, the place of
// new rows, attention over what is valid.
#pragma once

#include "ir/cache_layout.h"
#include "runtime/attention/attention_call.h"
#include "runtime/kernels/support/integer_input.h"

namespace kvopt::runtime {

/// Some rows in a tensor of rows, and as many slots of a cache.
struct RowSpan {
  int64_t first;
  int64_t slot;
  int64_t count;
};

/// One cache of a node and the rows that are written into it.
class InPlaceCache {
public:
  struct Operands {
    const char* name;     ///< for messages
    unsigned fresh;       ///< operand: [B,G,S,W]
    unsigned past;        ///< operand: laid out as ir/cache_layout.h says
    unsigned present;     ///< result
    const char* axisName; ///< the attribute that says where the sequence lies
    /// What the cache holds; Undefined: what the new rows are of. UInt8: rows of four-bit codes.
    ir::ElementType held = ir::ElementType::Undefined;
  };

  /// Fails where new rows and cache do not fit each other. Nothing is written.
  static llvm::Expected<InPlaceCache> create(const KernelContext& context,
                                             const Operands& operands);

  int64_t rows() const { return fresh->shape[2]; }
  int64_t width() const { return fresh->shape[3]; }
  int64_t capacity() const { return past->shape[layout.sequenceAxis()]; }
  bool isTransposed() const { return layout.isTransposed(); }
  const TensorView& freshRows() const { return *fresh; }
  const ir::CacheLayout& cacheLayout() const { return layout; }

  /// A tensor of the cache's form as [B,G,C,W] or, transposed, [B,G,W,C].
  TensorView slots(const TensorView& cache) const;
  TensorView pastSlots() const { return slots(*past); }

  /// The present before any row is written into it, as `slots`.
  llvm::Expected<TensorView> present(KernelContext& context) const;
  /// Writes the new rows at each batch row's length, and nothing else; the present, as `slots`.
  llvm::Expected<TensorView> append(KernelContext& context, llvm::ArrayRef<int64_t> lengths) const;
  /// Writes new rows of one batch row to `slots`.
  void writeRows(const TensorView& slots, int64_t batch, const RowSpan& span) const;

private:
  Operands operands;
  const TensorView* fresh = nullptr;
  const TensorView* past = nullptr;
  ir::CacheLayout layout;
};

/// The storage of a present: the past's own where it may be overwritten. One that nobody reads
/// still has to be attended over, so it gets temporary memory.
llvm::Expected<TensorView> presentStorage(KernelContext& context, unsigned result,
                                          unsigned operand);

/// What each batch row holds before and after the new rows, in scratch memory.
struct CacheLengths {
  kernels::IntegerList before;
  kernels::IntegerList after;
};

/// Reads past_length (int64, [1] or [B]); fails where the new rows exceed the capacity.
llvm::Expected<CacheLengths> cacheLengths(KernelContext& context, unsigned operand, int64_t batches,
                                          int64_t rows, int64_t capacity);

/// The attributes and optional operands that the operators have in common; fails where mask_boolean
/// contradicts the mask.
llvm::Expected<AttentionOperands> attentionOperands(const KernelContext& context, unsigned mask,
                                                    unsigned sinks);

} // namespace kvopt::runtime
