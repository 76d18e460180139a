// f32 copies of floating-point operands, for kernels that compute in f32.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::kernels {

/// Uninitialized memory for `count` floats, for the duration of this call. An error of the node if
/// the size overflows or memory is short.
llvm::Expected<float*> floatScratch(runtime::KernelContext& context, int64_t count);

/// Elements of a contiguous f32, f16 or bf16 tensor as f32: its own memory if it is f32, otherwise
/// scratch memory of this call. An error for other types.
llvm::Expected<const float*> floatsOf(runtime::KernelContext& context,
                                      const runtime::TensorView& tensor);

/// Memory for an f32 result that will be stored in `output`: the output's own memory if it is f32,
/// otherwise scratch memory. `storeFloats` completes it.
llvm::Expected<float*> floatResult(runtime::KernelContext& context,
                                   const runtime::TensorView& output);

/// Rounds `values` to the output's type; does nothing if they are in the output's own memory.
void storeFloats(const float* values, const runtime::TensorView& output);

} // namespace kvopt::kernels
