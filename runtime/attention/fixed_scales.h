// Caches of codes whose scales do not depend on the token, as in ONNX Runtime's operators.
#pragma once

#include "runtime/attention/attention_call.h"
#include "runtime/simd/fixed_scale_rows.h"

namespace kvopt::runtime {

/// Two caches of codes with the same format: bytes (int8) or nibbles (uint8).
struct FixedScaleCaches {
  simd::FixedScales key;
  simd::FixedScales value;
  simd::CodeForm form = simd::CodeForm::bytes;

  ir::ElementType element() const {
    return form == simd::CodeForm::bytes ? ir::ElementType::Int8 : ir::ElementType::UInt8;
  }
  /// Number of elements in a row of `columns` columns.
  int64_t rowElements(int64_t columns) const { return simd::codeRowBytes(form, columns); }
};

/// Quantizes rows `from` [1,G,S,D], of a floating-point type of at most 32 bits, to codes `to`
/// [1,G,S,rowElements(D)], as writeFixedScaleRow does. Rows of both are contiguous.
void writeCodes(KernelContext& context, const simd::FixedScales& scales, simd::CodeForm form,
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
