// Matrix products with OpenBLAS on a single thread, because the executor's pool owns all threads.
#pragma once

#include <cstdint>

namespace kvopt::kernels {

/// C[m,n] = alpha * op(A) op(B) + beta * C, row-major, where op(A) is [m,k] and op(B) is [k,n]; a
/// transposed operand is stored as [k,m] or [n,k]. lda, ldb and ldc are row strides as stored. With
/// m = 1, B is read once (gemv). Extents must fit into int (see `blasFits`).
struct MatrixProduct {
  bool transposeA = false;
  bool transposeB = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  float alpha = 1.0f;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float beta = 0.0f;
  float* c = nullptr;
  int64_t ldc = 0;
};

/// Whether extents and row strides fit into the types of the library's interface.
bool blasFits(const MatrixProduct& product);

/// Computes the product. Sums have the same order on every thread.
void multiply(const MatrixProduct& product);

} // namespace kvopt::kernels
