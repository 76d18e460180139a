// The numbers in a session's quantized caches.
#pragma once

#include "runtime/session/cache_state.h"

namespace kvopt::runtime {

/// What the valid rows of cache `cache`, whose scales are cache `scales`, stand for: a contiguous
/// tensor of float, or of float16 or bfloat16, to which the products of f32 are rounded.
llvm::Expected<Tensor> dequantizedCache(const CacheState& caches, size_t cache, size_t scales,
                                        ir::ElementType element);

/// The same of some rows of cache `cache`, and of as many of their scales.
llvm::Expected<Tensor> dequantizedRows(const CacheState& caches, size_t cache,
                                       const TensorView& rows, const TensorView& scales,
                                       ir::ElementType element);

} // namespace kvopt::runtime
