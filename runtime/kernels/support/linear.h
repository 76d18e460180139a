// Matrix products of activations with weights, for all operators that have such products.
//
//   rows <= 16     one pass over the weights as stored (float_product.h, block_product.h)
//   rows > 16      oneDNN where it reads packed strips (strip_product.h), otherwise OpenBLAS;
//                  weights are expanded to f32 strip by strip
//
// Work is divided along rows and columns of the result, and along the inner extent only where sums
// are divided in any case, so that no result depends on the number of threads. For up to 16 rows,
// the bits of a row do not depend on the other rows. Sums are computed in f32.
#pragma once

#include "runtime/exec/kept_strips.h"
#include "runtime/exec/kernel.h"
#include "runtime/linear/block_product.h"
#include "runtime/memory/element_storage.h"

#include <array>

namespace kvopt::kernels {

/// out[m,n] = alpha * sum_k A[m,k] W[k,n] + beta * addend[m,n], all f32 except W. Everything is
/// contiguous except the addend, which may repeat (a stride of 0).
struct LinearProduct {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;
  const float* a = nullptr;
  bool transposeA = false; ///< A is stored [inner,rows]
  simd::FloatStorage storage = simd::FloatStorage::f32;
  const void* weights = nullptr;
  bool transposeWeights = false;                ///< W is stored [columns,inner]
  const linear::BlockWeights* blocks = nullptr; ///< W unless it is floating-point
  const runtime::KeptStrips* strips = nullptr;  ///< for constant W, may be null
  float* out = nullptr;
  float alpha = 1.0f;
  const float* addend = nullptr;
  std::array<int64_t, 2> addendStrides = {0, 0};
  float beta = 1.0f;
};

/// Several products with the same extents. Results are consecutive in memory; the operands of each
/// result are at these distances, in elements, from those of the LinearProduct.
class MatrixBatch {
public:
  /// A single product.
  MatrixBatch() = default;
  /// One product for each element of `shape`, to which the operands' batch axes broadcast.
  MatrixBatch(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> aShape,
              int64_t aMatrixElements, llvm::ArrayRef<int64_t> weightShape,
              int64_t weightMatrixElements);

  struct Offsets {
    int64_t a = 0;
    int64_t weights = 0;
  };
  int64_t count() const { return matrices; }
  /// Number of left operands, which are consecutive in memory.
  int64_t leftMatrices() const { return aMatrices; }
  Offsets at(int64_t index) const;

private:
  int64_t matrices = 1;
  int64_t aMatrices = 1;
  runtime::Extents extents, aStrides, weightStrides;
};

/// Sets W of `product` to operand `operand`, whose matrices are stored as [columns,inner] if
/// `transposed`, or to the constants that the context provides instead.
void setWeights(const runtime::KernelContext& context, unsigned operand, bool transposed,
                LinearProduct& product);

/// Computes all products of `batch` on the context's threads. Scratch memory is at most the
/// activations' size and, for more than 16 rows, 2 MiB or 64 columns of W in f32 per thread; for
/// one row, sums of blocks of 256 inner values for at most 2048 columns per thread. `blocks`
/// requires a single product. An error of the node if extents do not fit into 32 bits for more than
/// 16 rows, or if memory is short.
llvm::Error multiplyMatrices(runtime::KernelContext& context, const LinearProduct& product,
                             const MatrixBatch& batch = {});

} // namespace kvopt::kernels
