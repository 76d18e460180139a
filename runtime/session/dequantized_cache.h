// Numbers in a session's quantized caches.
#pragma once

#include "runtime/session/cache_state.h"

namespace kvopt::runtime {

/// Numbers that the valid rows of cache `cache` represent, whose scales are cache `scales`: a
/// contiguous tensor of float, or of float16 or bfloat16, to which the f32 products are rounded.
llvm::Expected<Tensor> dequantizedCache(const CacheState& caches, size_t cache, size_t scales,
                                        ir::ElementType element);

/// The same for some rows of cache `cache`, with the same number of scales.
llvm::Expected<Tensor> dequantizedRows(const CacheState& caches, size_t cache,
                                       const TensorView& rows, const TensorView& scales,
                                       ir::ElementType element);

} // namespace kvopt::runtime
