// Scales of codes, found by running a text.
#pragma once

#include "driver/verify/text_reader.h"
#include "passes/targets/ort_gqa/code_caches.h"

namespace kvopt::driver {

/// Runs the text and finds, for each column of each head of every cache [B,G,C,D] in one buffer,
/// the scale by which its largest number becomes the largest code: 127 of `bits` 8, 7 of 4. Columns
/// that are always 0 get the largest scale of their head. Fails for a token outside of the
/// vocabulary, and for a text that is shorter than a step.
llvm::Expected<targets::CodeScales> calibrate(const ir::Model& model, const ir::Manifest& manifest,
                                              const TextPlan& plan, int bits,
                                              const Toolkit& toolkit);

} // namespace kvopt::driver
