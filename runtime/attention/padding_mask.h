// The masks of ONNX Runtime's attention operators as one additive mask.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

struct PaddingMaskRequest {
  /// Integers: 0 and less hides. [B,T] hides keys, [B,S,T] pairs of row and key; [B] gives the
  /// number of keys that are not hidden, as do the first B of [3B+2], whose other numbers say where
  /// rows and keys of a packed batch start; [2B], with hasStartPositions, the ends of the keys that
  /// are not hidden and then their starts. Null: nothing is hidden.
  const TensorView* visible = nullptr;
  bool hasStartPositions = false;
  /// Added to the scores: float [1|B,1|H,S,T]. Null: none.
  const TensorView* bias = nullptr;
  int64_t batches = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t keys = 0;
  int64_t pastRows = 0; ///< how many of the keys come before the new ones
  /// Row i does not see keys beyond pastRows + i; the last row sees all of them.
  bool causal = false;
  /// What is added for a key that `visible` hides.
  float hidden = 0.0f;
};

/// A float mask [1|B, 1|H, S, T] in scratch memory: bias + hidden where `visible` says so, and the
/// lowest float where `causal` hides. All of them are finite: a row that sees nothing averages the
/// keys with the largest sum.
llvm::Expected<TensorView> paddingMask(KernelContext& context, const PaddingMaskRequest& request,
                                       llvm::ArrayRef<int64_t> visible);

} // namespace kvopt::runtime
