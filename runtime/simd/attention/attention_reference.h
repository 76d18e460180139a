// The definition of attention, as plain loops in double.
#pragma once

#include "runtime/simd/attention/attention.h"

namespace kvopt::simd {

/// The formula of AttentionView, evaluated in double; `view.output` is not touched.
/// Writes [B,H,S,Dv], dense, to `output`, which has that many elements.
void attentionReference(const AttentionView& view, std::span<double> output);

} // namespace kvopt::simd
