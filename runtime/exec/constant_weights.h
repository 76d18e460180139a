// ConstantWeights: constant matrices in the form in which matrix products read them.
#pragma once

#include "runtime/linear/block_product.h"
#include "runtime/memory/tensor_view.h"

#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <optional>

namespace kvopt::runtime {

/// A constant operand of a matrix product that was never computed: its transposes, casts and
/// dequantizations are left to the product, which reads the constant they start from.
struct ConstantWeights {
  /// Element type and extents of the operand; it has no data.
  TensorView described;
  /// Floating-point weights: `data` holds the operand's matrices one after the other, each with its
  /// axes swapped if `transposed`.
  simd::FloatStorage storage = simd::FloatStorage::f32;
  const void* data = nullptr;
  bool transposed = false;
  /// Weights of small integers: the matrix W of the product, [columns,inner].
  std::optional<linear::BlockWeights> blocks;
  /// Keep the memory alive.
  llvm::SmallVector<std::shared_ptr<const void>, 3> owners;
};

} // namespace kvopt::runtime
