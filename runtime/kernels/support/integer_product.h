// Products of matrices of 8-bit integers, exact in int32.
#pragma once

#include "runtime/exec/kernel.h"
#include "runtime/linear/code_strips.h"

namespace kvopt::kernels {

/// One operand: 8-bit codes, from which zero points are subtracted.
struct CodeOperand {
  const uint8_t* codes = nullptr;             ///< null if the product reads `strips`
  const linear::CodeStrips* strips = nullptr; ///< a constant right operand
  bool isSigned = false;                      ///< two's complement
  /// Null if all zero points are 0. Otherwise they have the codes' type: one zero point, or one for
  /// each position of the axis that is not summed.
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

/// Working memory of products of one shape, allocated by the first of them.
struct IntegerScratch {
  float* a = nullptr;
  float* tiles = nullptr;
  std::byte* strips = nullptr;
};

/// Strips of a constant matrix of 8-bit codes, for Kernel::packWeights. Null if oneDNN does not
/// multiply them exactly on this CPU, if the constant is not one matrix, or if memory is short.
std::shared_ptr<const runtime::ConstantWeights>
packCodes(const ir::Value& value, runtime::ConstantMemory& memory, runtime::ThreadPool& pool);

/// Sets the codes of `operand` to operand `index`, or to the constant that the context provides
/// instead.
void setCodes(const runtime::KernelContext& context, unsigned index, CodeOperand& operand);

/// Computes the product on the context's threads. Scratch memory is at most A's extents in f32 and
/// 128 KiB per thread; with strips, A's extents in bytes and 512 KiB per thread.
///
/// With strips, oneDNN computes the sums; integers are exact modulo 2^32. Without:
///
/// Codes minus their zero points have a magnitude of at most 255, so the sum of 256 products is
/// below 2^24 and exact in f32, in any order. OpenBLAS and float_product.h compute these sums, and
/// int32 accumulates them.
llvm::Error multiplyIntegers(runtime::KernelContext& context, const IntegerProduct& product,
                             IntegerScratch& scratch);

} // namespace kvopt::kernels
