// Operators on tensors of position forms.
#pragma once

#include "passes/analysis/rotation/form_tensor.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <memory>
#include <string>

namespace kvopt::analysis {

/// Null if the result is not a tensor of position forms; `why` then holds the reason.
using MadeForms = std::shared_ptr<FormTensor>;

/// Add, Sub, Mul, Div, Pow, Max, or Min with broadcasting. A position is never negative, so its
/// maximum with a number <= 0 is the position itself.
MadeForms combinedForms(llvm::StringRef type, const FormTensor& a, const FormTensor& b,
                        bool isInteger, std::string& why);
/// Neg, Cos, Sin, Sqrt, Reciprocal, Exp, or Log of each element.
MadeForms changedForms(llvm::StringRef type, const FormTensor& a, std::string& why);
/// MatMul of operands of two axes or more.
MadeForms multipliedForms(const FormTensor& a, const FormTensor& b, std::string& why);
/// Einsum of two operands whose axes are single letters.
MadeForms einsumForms(llvm::StringRef equation, const FormTensor& a, const FormTensor& b,
                      std::string& why);

/// Operands of a rotary operator.
struct RotaryForms {
  /// Width of the heads of x: heads [B,H,S,D], or rows [B,S,H*D].
  int64_t width = 0;
  bool interleaved = false;
  /// One form for each token of a batch row and each pair.
  std::vector<PositionForm> cosines;
  std::vector<PositionForm> sines;
};

/// RotaryEmbedding of one batch row:
///
///   y[first]  = cos * x[first] - sin * x[second]
///   y[second] = sin * x[first] + cos * x[second]
///
/// where pair i is (i, i + pairs), or (2i, 2i + 1) if interleaved.
MadeForms rotatedForms(const FormTensor& x, const RotaryForms& rotary, std::string& why);

} // namespace kvopt::analysis
