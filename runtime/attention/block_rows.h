// Rows of blocks as segments of attention: what operators over blocks share.
#pragma once

#include "runtime/attention/attention_call.h"

namespace kvopt::runtime {

/// The tensor or, where the elements of its rows lie apart, a copy in scratch memory.
llvm::Expected<TensorView> withContiguousRows(KernelContext& context, const TensorView& view);

/// Distances in a tensor of rank 4, without those within rows.
simd::RowStrides rowStridesOf(const TensorView& view);

/// `count` segments in scratch memory.
llvm::Expected<std::span<simd::KeyValueSegment>> scratchSegments(KernelContext& context,
                                                                 size_t count);

} // namespace kvopt::runtime
