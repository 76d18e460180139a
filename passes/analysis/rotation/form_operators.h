// Operators on tensors of position forms.
#pragma once

#include "passes/analysis/rotation/form_tensor.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <memory>
#include <string>

namespace kvopt::analysis {

/// Null where the result is not a tensor of position forms; `why` then says so.
using MadeForms = std::shared_ptr<FormTensor>;

/// Add, Sub, Mul, Div, Pow, Max, or Min with broadcasting. A position is never negative, so that
/// its maximum with a number that is not positive is itself.
MadeForms combinedForms(llvm::StringRef type, const FormTensor& a, const FormTensor& b,
                        bool isInteger, std::string& why);
/// Neg, Cos, Sin, Sqrt, Reciprocal, Exp, or Log of each element.
MadeForms changedForms(llvm::StringRef type, const FormTensor& a, std::string& why);
/// MatMul of operands of two axes or more.
MadeForms multipliedForms(const FormTensor& a, const FormTensor& b, std::string& why);
/// Einsum of two operands whose axes are single letters.
MadeForms einsumForms(llvm::StringRef equation, const FormTensor& a, const FormTensor& b,
                      std::string& why);

/// How an operator rotates rows.
struct RotaryForms {
  /// Of x: heads [B,H,S,D], or rows [B,S,H*D] of heads of this width.
  int64_t width = 0;
  bool interleaved = false;
  /// For each token of a batch row and each pair.
  std::vector<PositionForm> cosines;
  std::vector<PositionForm> sines;
};

/// RotaryEmbedding of one batch row:
///
///   y[first]  = cos * x[first] - sin * x[second]
///   y[second] = sin * x[first] + cos * x[second]
///
/// where pair i is (i, i + pairs), or (2i, 2i + 1) when interleaved.
MadeForms rotatedForms(const FormTensor& x, const RotaryForms& rotary, std::string& why);

} // namespace kvopt::analysis
