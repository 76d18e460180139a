// Matrix products by OpenBLAS, single-threaded: the executor's pool is the only owner of threads.
#pragma once

#include <cstdint>

namespace kvopt::kernels {

/// C[m,n] = alpha * op(A) op(B) + beta * C, row-major, where op(A) is [m,k] and op(B) [k,n] and a
/// transposed operand is stored as [k,m] or [n,k]. lda, ldb and ldc are the distances of rows as
/// stored. With m = 1 it reads B once (gemv). Extents must fit in int (checked by `blasFits`).
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

/// Whether extents and row distances are within what the library's interface can say.
bool blasFits(const MatrixProduct& product);

/// The same sums in the same order whatever thread calls it.
void multiply(const MatrixProduct& product);

} // namespace kvopt::kernels
