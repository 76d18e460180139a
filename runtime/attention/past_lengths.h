// pastLengths: how many tokens each batch row holds already, as operators are told.
#pragma once

#include "runtime/kernels/support/integer_input.h"

namespace kvopt::runtime {

/// The int64 operand of shape [1] or [batches], one number a batch row; an error of the node for
/// anything else. The numbers themselves are not checked.
llvm::Expected<kernels::IntegerList> pastLengths(KernelContext& context, unsigned operand,
                                                 int64_t batches);

/// The keys that each batch row reads, past_length[b] + `rows`; an error of the node where they are
/// not in [0, keys].
llvm::Expected<kernels::IntegerList> totalLengths(KernelContext& context, unsigned operand,
                                                  int64_t batches, int64_t rows, int64_t keys);

/// What each batch row holds before and after the new rows, in scratch memory.
struct CacheLengths {
  kernels::IntegerList before;
  kernels::IntegerList after;
};

/// Reads past_length (int64, [1] or [B]); fails where the new rows exceed the capacity.
llvm::Expected<CacheLengths> cacheLengths(KernelContext& context, unsigned operand, int64_t batches,
                                          int64_t rows, int64_t capacity);

} // namespace kvopt::runtime
