// Definition of attention as plain loops in double.
#pragma once

#include "runtime/simd/attention/attention.h"

namespace kvopt::simd {

/// Evaluates the formula of AttentionView in double, without writing `view.output`. Writes
/// [B,H,S,Dv], contiguous, to `output`, which has exactly these elements.
void attentionReference(const AttentionView& view, std::span<double> output);

} // namespace kvopt::simd
