// Model with all numbers in f32 and the same weights, whose results a narrower model rounds.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::unrounding {

/// Kinds of rounding in a model.
struct NarrowNumbers {
  bool float16 = false;
  bool bfloat16 = false;
  bool quantizedWeights = false; ///< MatMulNBits

  bool any() const { return float16 || bfloat16 || quantizedWeights; }
  /// Half the distance between 1 and the next larger number; 0 if all floats are f32.
  double unitRoundoff() const { return bfloat16 ? 0x1p-8 : float16 ? 0x1p-11 : 0.0; }
};

/// Kinds of numbers in inputs, outputs, constants and casts of all graphs of the model.
NarrowNumbers narrowNumbersOf(const ir::Model& model);

/// Converts every float16 and bfloat16 number of the model, its functions and the manifest to a
/// float of the same value, and every MatMulNBits to a MatMul with the values that its weights
/// represent. Types are inferred again. Fails if a quantized weight is not a constant, has an
/// unknown format, or cannot be read; then the model must not be used.
llvm::Error widenModel(ir::Model& model, ir::Manifest& manifest);

} // namespace kvopt::unrounding
