// Products of matrices of 8-bit integers, exact in int32.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::kernels {

/// One operand: 8-bit codes, of which a zero point is taken away first.
struct CodeOperand {
  const uint8_t* codes = nullptr;
  bool isSigned = false; ///< two's complement
  /// Null where zero points are 0. Otherwise of the codes' type: one, or one per position of the
  /// extent that is not summed over.
  const uint8_t* zeros = nullptr;
  bool hasManyZeros = false;

  int32_t zero(int64_t position) const;
};

/// out[m,n] = sum_k (A[m,k] - zero of A[m]) (B[k,n] - zero of B[n]), modulo 2^32; all contiguous.
struct IntegerProduct {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;
  CodeOperand a;
  CodeOperand b;
  int32_t* out = nullptr;
};

/// Working memory of products of one shape, taken by the first of them.
struct IntegerScratch {
  float* a = nullptr;
  float* tiles = nullptr;
};

/// Computes the product on the context's threads, in scratch memory of at most A's extents in f32
/// and 128 KiB per thread.
///
/// Codes without their zero points are at most 255 in magnitude, so that the sum of 256 products is
/// below 2^24 and exact in f32, in whatever order it is added. OpenBLAS and float_product.h compute
/// these sums, and int32 adds them.
llvm::Error multiplyIntegers(runtime::KernelContext& context, const IntegerProduct& product,
                             IntegerScratch& scratch);

} // namespace kvopt::kernels
