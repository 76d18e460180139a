// The root mean square norm of each head's rows that attention operators apply before they rotate.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

struct HeadNormalization {
  unsigned queryWeights = 0; ///< operand [D]
  unsigned keyWeights = 0;   ///< operand [D]; present exactly when the other one is
  llvm::StringRef epsilon;   ///< attribute, 1e-6 where it is absent
};

/// Puts normalized copies, in scratch memory, in the place of query [B,H,S,D] and key [B,G,S,D],
/// both of one floating-point type with contiguous rows:
///
///   y = x / sqrt(mean(x^2) + epsilon) * weight
///
/// f32 arithmetic, rounded once. Does nothing without the weights; an error of the node when only
/// one of them is present or one has another length than D.
llvm::Error normalizeHeads(KernelContext& context, TensorView& query, TensorView& key,
                           const HeadNormalization& request);

} // namespace kvopt::runtime
