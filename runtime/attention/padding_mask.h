// Masks of ONNX Runtime's attention operators, combined to one additive mask.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

struct PaddingMaskRequest {
  /// Integer mask; null if nothing is hidden. Values <= 0 hide keys [B,T] or pairs of row and key
  /// [B,S,T]. [B] is the number of visible keys. So are the first B of [3B+2]; the other numbers
  /// are the offsets of rows and keys in a packed batch. [2B], with hasStartPositions, holds the
  /// ends of the visible keys, followed by their starts.
  const TensorView* visible = nullptr;
  bool hasStartPositions = false;
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

/// A float mask [1|B, 1|H, S, T] in scratch memory: bias, plus `hidden` for keys that `visible`
/// hides; the lowest float for keys that `causal` hides. All numbers are finite, so a row that sees
/// nothing averages the keys with the largest sum.
llvm::Expected<TensorView> paddingMask(KernelContext& context, const PaddingMaskRequest& request,
                                       llvm::ArrayRef<int64_t> visible);

} // namespace kvopt::runtime
