// FixedScales: scales of caches of codes that do not depend on the token, as in ONNX Runtime's
// operators: one number for a whole cache, or one for each column of each head.
#pragma once

#include "runtime/attention/attention_call.h"

namespace kvopt::runtime {

/// Scales of one cache. A code q in column d of head g represents the number q * `of(g, d)`.
struct FixedScales {
  const float* numbers = nullptr; ///< [1] or, with `perColumn`, [G,D]
  bool perColumn = false;
  int64_t width = 0; ///< D

  float of(int64_t head, int64_t column) const {
    return numbers[perColumn ? head * width + column : 0];
  }
};

/// Two caches of codes with the same format: bytes (int8) or nibbles (uint8).
struct FixedScaleCaches {
  FixedScales key;
  FixedScales value;
  simd::CodeForm form = simd::CodeForm::bytes;

  ir::ElementType element() const {
    return form == simd::CodeForm::bytes ? ir::ElementType::Int8 : ir::ElementType::UInt8;
  }
  /// Number of elements in a row of `columns` columns.
  int64_t rowElements(int64_t columns) const { return simd::codeRowBytes(form, columns); }
};

/// Quantizes rows `from` [1,G,S,D], of a floating-point type of at most 32 bits, to codes `to`
/// [1,G,S,rowElements(D)]. Rows of both are contiguous.
///
///   q = x * (1 / s) to the nearest integer, ties to even, within [-128, 127] or [-8, 7]
///
/// in f32, with each operation rounded once; 1 / s is 1 for s = 0. NaN becomes the largest code.
/// The code of a padding column after an odd width is 0.
void writeCodes(KernelContext& context, const FixedScales& scales, simd::CodeForm form,
                const TensorView& from, const TensorView& to);

/// Sets the scales of `operands`, whose key and value are caches of codes, as far as scales do not
/// depend on the column.
llvm::Error setRowScales(KernelContext& context, const FixedScaleCaches& caches,
                         AttentionOperands& operands);

/// Computes runAttention over the numbers that codes represent, into a contiguous `output`
/// [B,S,H*Dv]. No number of a cache is computed: scales of columns multiply the query before, and
/// the output after. Requires setRowScales, and that checkAttention succeeded.
///
///   sum_d Q[d] (s[d] K[j,d]) = sum_d (Q[d] s[d]) K[j,d]     sum_j p[j] (s[d] V[j,d]) = s[d] sum_j
///   …
llvm::Error runFixedScaleAttention(KernelContext& context, const FixedScaleCaches& caches,
                                   AttentionOperands operands, const TensorView& output);

} // namespace kvopt::runtime
