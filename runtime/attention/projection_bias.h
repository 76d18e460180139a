// Bias of the projections of query, key and value, which some attention operators add.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// Adds elements [first, first + H*D) of the operand, a vector of the same element type, to `heads`
/// [B,H,S,D]: out[b,h,s,d] = heads[b,h,s,d] + bias[first + h*D + d], computed in float and rounded
/// once, in scratch memory. The caller has checked the operand's length.
llvm::Expected<TensorView> withProjectionBias(KernelContext& context, const TensorView& heads,
                                              unsigned operand, int64_t first);

} // namespace kvopt::runtime
