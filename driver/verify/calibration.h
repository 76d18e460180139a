// Calibration: scales of codes, determined by running a text.
#pragma once

#include "driver/rewrite/request.h"
#include "driver/verify/text_reader.h"
#include "passes/targets/ort_gqa/code_caches.h"

namespace kvopt::driver {

/// Runs the text and determines a scale for each column of each head of every cache [B,G,C,D] in
/// one buffer. With it, the column's largest number becomes the largest code: 127 for 8 `bits`, 7
/// for 4. A column that is always 0 gets the largest scale of its head. Fails for a token outside
/// the vocabulary, and for a text that is shorter than a step.
llvm::Expected<targets::CodeScales> calibrate(const ir::Model& model, const ir::Manifest& manifest,
                                              const TextPlan& plan, int bits,
                                              const Toolkit& toolkit);

/// Runner::calibrate.
llvm::Expected<targets::CodeScales> calibrateFor(const ir::Model& model,
                                                 const ir::Manifest& manifest,
                                                 const std::optional<ir::Manifest>& exported,
                                                 const RewriteRequest& request,
                                                 const Toolkit& toolkit);

} // namespace kvopt::driver
