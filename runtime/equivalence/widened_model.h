// The model whose results a narrower one rounds: the same weights, all numbers in f32.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::runtime {

/// What a model rounds that `widen` does not.
struct NarrowNumbers {
  bool float16 = false;
  bool bfloat16 = false;
  bool quantizedWeights = false; ///< MatMulNBits

  bool any() const { return float16 || bfloat16 || quantizedWeights; }
  /// Half the distance between 1 and the next larger number; 0 where all floats are f32.
  double unitRoundoff() const { return bfloat16 ? 0x1p-8 : float16 ? 0x1p-11 : 0.0; }
};

/// Of inputs, outputs, constants and casts of all graphs of the model.
NarrowNumbers narrowNumbersOf(const ir::Model& model);

/// Makes every float16 and bfloat16 number of the model, its functions and the manifest a float,
/// with the value it has, and every MatMulNBits a MatMul with the values that its weights stand
/// for. Types are inferred anew. Fails when a quantized weight is no constant, has a form that is
/// not known, or cannot be read; the model must not be used then.
llvm::Error widenModel(ir::Model& model, ir::Manifest& manifest);

} // namespace kvopt::runtime
