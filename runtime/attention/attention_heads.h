// Views of attention operands as [B,H,S,D], and presents composed of a past and new rows.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// View of [B,S,H*D] as [B,H,S,D]. `heads` > 0 must divide the last extent.
TensorView viewOfHeads(const TensorView& tensor, int64_t heads);

/// View of [B,H,S,D] or [B,S,H*D] as [B,H,S,D]. For other shapes, an error of the node that calls
/// the tensor `what`.
llvm::Expected<TensorView> headsOf(const KernelContext& context, const TensorView& tensor,
                                   int64_t heads, llvm::StringRef what);

/// View of the positions [first, first + count) of one axis.
TensorView slicedAxis(const TensorView& tensor, unsigned axis, int64_t first, int64_t count);

/// Copies [B,H,S,D] to a tensor with the same extents and element type. Rows are contiguous.
void copyRows(const TensorView& from, const TensorView& to);

/// Sets [B,H,S,D] to zero bytes. Rows are contiguous.
void clearRows(const TensorView& to);

/// Contiguous memory for a result; scratch memory if the result is unused.
llvm::Expected<TensorView> outputOrScratch(KernelContext& context, unsigned result,
                                           ir::ElementType element, llvm::ArrayRef<int64_t> shape);

/// Contiguous scratch memory.
llvm::Expected<TensorView> scratchTensor(KernelContext& context, ir::ElementType element,
                                         llvm::ArrayRef<int64_t> shape);

/// Storage of a present: that of the past if it may be overwritten. An unused present is still read
/// by attention, so it is in temporary memory.
llvm::Expected<TensorView> presentStorage(KernelContext& context, unsigned result,
                                          unsigned operand);

/// Result `result` [B,G,P+S,D]: the rows of `past` [B,G,P,D] (null without a past), followed by
/// those of `fresh` [B,G,S,D]. If the result is unused and there is no past, returns `fresh`.
llvm::Expected<TensorView> presentOf(KernelContext& context, unsigned result,
                                     const TensorView* past, const TensorView& fresh);

} // namespace kvopt::runtime
