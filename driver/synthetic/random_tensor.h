// Tensors of random numbers that are computed when they are read: a model of any size is a few
// megabytes until its weights are written.
#pragma once

#include "ir/tensor.h"

namespace kvopt::driver {

/// Numbers of which element i depends on `key` and i only: the 16-bit word i of the SplitMix64
/// sequence that starts at `key`, four to a step. All platforms agree on every bit.
///
/// Words are spread evenly over centre ± deviation * √3, which has that standard deviation. Numbers
/// of float16 and bfloat16 are those of float32, rounded.
ir::TensorRef randomNumbers(ir::ElementType type, llvm::ArrayRef<int64_t> shape, uint64_t key,
                            double centre, double deviation);

/// Random bytes: a uint8 tensor of packed codes.
ir::TensorRef randomCodes(llvm::ArrayRef<int64_t> shape, uint64_t key);

/// A key for the tensor called `name` in a model with this seed.
uint64_t keyOf(uint64_t seed, llvm::StringRef name);

} // namespace kvopt::driver
