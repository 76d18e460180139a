// Tensors of random numbers that are computed when they are read. A model of any size takes a few
// megabytes until its weights are written.
#pragma once

#include "ir/tensor.h"

namespace kvopt::driver {

/// Random numbers whose element i depends only on `key` and i: it is the 16-bit word i of the
/// SplitMix64 sequence that starts at `key`, with four words per step. All platforms agree on every
/// bit.
///
/// Words are distributed evenly over centre ± deviation * √3, an interval with that standard
/// deviation. Numbers of float16 and bfloat16 are those of float32, rounded.
ir::TensorRef randomNumbers(ir::ElementType type, llvm::ArrayRef<int64_t> shape, uint64_t key,
                            double centre, double deviation);

/// A uint8 tensor of random bytes, which are packed codes.
ir::TensorRef randomCodes(llvm::ArrayRef<int64_t> shape, uint64_t key);

/// The key for the tensor called `name` in a model with this seed.
uint64_t keyOf(uint64_t seed, llvm::StringRef name);

} // namespace kvopt::driver
