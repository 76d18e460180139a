// Calls of OpenBLAS; no other file calls it.
#include "runtime/kernels/support/blas.h"

#include <algorithm>
#include <cblas.h>
#include <climits>

namespace kvopt::kernels {
namespace {

/// The number of threads is a global setting of the library, made once before its first use.
void useOneThread() {
  static const bool done = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)done;
}

CBLAS_TRANSPOSE form(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

/// sgemm and sgemv do not write C if there is nothing to sum.
void scaleOnly(const MatrixProduct& product) {
  for (int64_t row = 0; row < product.m; ++row)
    for (int64_t column = 0; column < product.n; ++column) {
      float& element = product.c[row * product.ldc + column];
      element = product.beta == 0.0f ? 0.0f : product.beta * element;
    }
}

/// Throws std::bad_alloc if there is no memory for the work area that OpenBLAS allocates for a
/// thread: OpenBLAS itself would try again without end.
void requireWorkArea() {
  constexpr size_t bytes = (size_t(128) << 20) + (size_t(64) << 10);
  thread_local bool hasWorked = false;
  if (hasWorked)
    return;
  ::operator delete(::operator new(bytes));
  hasWorked = true;
}

} // namespace

bool blasFits(const MatrixProduct& product) {
  int64_t largest =
      std::max({product.m, product.n, product.k, product.lda, product.ldb, product.ldc});
  return largest <= INT_MAX;
}

void multiply(const MatrixProduct& product) {
  useOneThread();
  if (product.m == 0 || product.n == 0)
    return;
  if (product.k == 0)
    return scaleOnly(product);
  requireWorkArea();
  auto narrow = [](int64_t extent) { return static_cast<blasint>(extent); };
  if (product.m == 1 && !product.transposeA) {
    // c^T = op(B)^T a^T; B is stored as [k,n], or as [n,k] if transposed.
    bool transpose = !product.transposeB;
    cblas_sgemv(CblasRowMajor, form(transpose), narrow(transpose ? product.k : product.n),
                narrow(transpose ? product.n : product.k), product.alpha, product.b,
                narrow(product.ldb), product.a, 1, product.beta, product.c, 1);
    return;
  }
  cblas_sgemm(CblasRowMajor, form(product.transposeA), form(product.transposeB), narrow(product.m),
              narrow(product.n), narrow(product.k), product.alpha, product.a, narrow(product.lda),
              product.b, narrow(product.ldb), product.beta, product.c, narrow(product.ldc));
}

} // namespace kvopt::kernels
