// Root mean square norm that attention operators apply to the rows of each head before rotation.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

struct HeadNormalization {
  unsigned queryWeights = 0; ///< operand [D]
  unsigned keyWeights = 0;   ///< operand [D]; present if and only if the other one is
  llvm::StringRef epsilon;   ///< attribute; default 1e-6
};

/// Replaces query [B,H,S,D] and key [B,G,S,D], both of the same floating-point type with contiguous
/// rows, with normalized copies in scratch memory:
///
///   y = x / sqrt(mean(x^2) + epsilon) * weight
///
/// in f32, rounded once. Does nothing without weights. An error of the node if only one of the
/// weights is present or their length is not D.
llvm::Error normalizeHeads(KernelContext& context, TensorView& query, TensorView& key,
                           const HeadNormalization& request);

} // namespace kvopt::runtime
