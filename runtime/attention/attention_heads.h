// Views of attention operands as [B,H,S,D], and presents made of a past and new rows.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// [B,S,H*D] seen as [B,H,S,D]; `heads` > 0 divides the last extent.
TensorView viewOfHeads(const TensorView& tensor, int64_t heads);

/// [B,H,S,D] as it is, [B,S,H*D] split into `heads`; an error of the node, which calls the tensor
/// `what`, for anything else.
llvm::Expected<TensorView> headsOf(const KernelContext& context, const TensorView& tensor,
                                   int64_t heads, llvm::StringRef what);

/// Positions [first, first + count) of one axis.
TensorView slicedAxis(const TensorView& tensor, unsigned axis, int64_t first, int64_t count);

/// Copies [B,H,S,D] to a tensor of the same extents and element type; rows are contiguous.
void copyRows(const TensorView& from, const TensorView& to);

/// Sets [B,H,S,D] to bytes of zero; rows are contiguous.
void clearRows(const TensorView& to);

/// Contiguous memory for a result, or scratch memory when nobody wants the result.
llvm::Expected<TensorView> outputOrScratch(KernelContext& context, unsigned result,
                                           ir::ElementType element, llvm::ArrayRef<int64_t> shape);

/// Contiguous scratch memory.
llvm::Expected<TensorView> scratchTensor(KernelContext& context, ir::ElementType element,
                                         llvm::ArrayRef<int64_t> shape);

/// The storage of a present: the past's own where it may be overwritten. One that nobody reads
/// still has to be attended over, so it gets temporary memory.
llvm::Expected<TensorView> presentStorage(KernelContext& context, unsigned result,
                                          unsigned operand);

/// [B,G,P+S,D]: the rows of `past` [B,G,P,D] (null: none), then those of `fresh` [B,G,S,D], as
/// result `result`. Where nobody wants the result and there is no past, `fresh` itself.
llvm::Expected<TensorView> presentOf(KernelContext& context, unsigned result,
                                     const TensorView* past, const TensorView& fresh);

} // namespace kvopt::runtime
