// ConstantWeights: constant matrices in the format that matrix products read.
#pragma once

#include "runtime/exec/kept_strips.h"
#include "runtime/linear/block_product.h"
#include "runtime/linear/code_strips.h"
#include "runtime/memory/tensor_view.h"

#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <optional>

namespace kvopt::runtime {

/// A constant operand of a matrix product that is not computed: the product performs its
/// transposes, casts and dequantizations while it reads the original constant.
struct ConstantWeights {
  /// Element type and extents of the operand, without data.
  TensorView described;
  /// Floating-point weights: `data` holds the operand's matrices contiguously, each with its axes
  /// swapped if `transposed`.
  simd::FloatStorage storage = simd::FloatStorage::f32;
  const void* data = nullptr;
  bool transposed = false;
  /// For one matrix of f32: its strips, for products with many rows.
  std::shared_ptr<const KeptStrips> strips;
  /// Weights of small integers: the matrix W of the product, [columns,inner].
  std::optional<linear::BlockWeights> blocks;
  /// Weights of 8-bit codes without scales.
  std::optional<linear::CodeStrips> codes;
  /// Owners of the memory.
  llvm::SmallVector<std::shared_ptr<const void>, 3> owners;
};

} // namespace kvopt::runtime
