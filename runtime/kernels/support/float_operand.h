// f32 working copies of floating-point operands, for kernels that compute in f32.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::kernels {

/// Uninitialized memory for `count` floats, for the duration of this call. An error of the node
/// when the size overflows or memory is short.
llvm::Expected<float*> floatScratch(runtime::KernelContext& context, int64_t count);

/// The elements of a contiguous f32, f16 or bf16 tensor as f32: its own memory when it is f32,
/// scratch memory of this call otherwise. An error for other types.
llvm::Expected<const float*> floatsOf(runtime::KernelContext& context,
                                      const runtime::TensorView& tensor);

/// Where to compute an f32 result that is to be stored in `output`: its own memory when it is f32,
/// scratch otherwise. `storeFloats` finishes it.
llvm::Expected<float*> floatResult(runtime::KernelContext& context,
                                   const runtime::TensorView& output);

/// Rounds `values` to the output's type; does nothing when they are the output's own memory.
void storeFloats(const float* values, const runtime::TensorView& output);

} // namespace kvopt::kernels
