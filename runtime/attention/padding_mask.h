// Masks of ONNX Runtime's attention operators, combined to one additive mask.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

struct PaddingMaskRequest {
  /// Integer mask in one of the forms of simd::PaddingForm; null if nothing is hidden.
  const TensorView* visible = nullptr;
  bool hasStartPositions = false; ///< whether the operator takes PaddingForm::ranges
  /// Bias that is added to the scores: float [1|B,1|H,S,T]; null without a bias.
  const TensorView* bias = nullptr;
  int64_t batches = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t keys = 0;
  int64_t pastRows = 0; ///< number of keys before the new ones
  /// Hides keys after pastRows + i from row i; the last row sees all keys.
  bool causal = false;
  /// Number that is added for a key that `visible` hides.
  float hidden = 0.0f;
};

/// The float mask [1|B, 1|H, S, T] that simd::PaddingMask describes, in scratch memory.
llvm::Expected<TensorView> paddingMask(KernelContext& context, const PaddingMaskRequest& request,
                                       llvm::ArrayRef<int64_t> visible);

} // namespace kvopt::runtime
