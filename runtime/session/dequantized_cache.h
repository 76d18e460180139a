// The numbers in a session's quantized caches.
#pragma once

#include "runtime/session/session.h"

namespace kvopt::runtime {

/// Which cache of the session has the scales of cache `cache`; nullopt if its rows are no codes.
std::optional<size_t> scalesOf(const Session& session, size_t cache);

/// What the valid rows of cache `cache`, whose scales are cache `scales`, stand for: a contiguous
/// tensor of float, or of float16 or bfloat16, to which the products of f32 are rounded.
llvm::Expected<Tensor> dequantizedCache(const Session& session, size_t cache, size_t scales,
                                        ir::ElementType element);

/// The same of some rows of cache `cache`, and of as many of their scales.
llvm::Expected<Tensor> dequantizedRows(const Session& session, size_t cache, const TensorView& rows,
                                       const TensorView& scales, ir::ElementType element);

} // namespace kvopt::runtime
