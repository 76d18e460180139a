// pastLengths: number of cached tokens per batch row, from an operand.
#pragma once

#include "runtime/kernels/support/integer_input.h"

namespace kvopt::runtime {

/// Values of the int64 operand of shape [1] or [batches], one per batch row; an error of the node
/// for other types and shapes. The values are not checked.
llvm::Expected<kernels::IntegerList> pastLengths(KernelContext& context, unsigned operand,
                                                 int64_t batches);

/// Number of keys that each batch row reads, past_length[b] + `rows`; an error of the node if they
/// are not in [0, keys].
llvm::Expected<kernels::IntegerList> totalLengths(KernelContext& context, unsigned operand,
                                                  int64_t batches, int64_t rows, int64_t keys);

/// Number of rows in the cache before and after the new rows, per batch row, in scratch memory.
struct CacheLengths {
  kernels::IntegerList before;
  kernels::IntegerList after;
};

/// Reads past_length (int64, [1] or [B]). Fails if the new rows exceed the capacity.
llvm::Expected<CacheLengths> cacheLengths(KernelContext& context, unsigned operand, int64_t batches,
                                          int64_t rows, int64_t capacity);

} // namespace kvopt::runtime
