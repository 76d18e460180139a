// The run of a first step, which gives the caches that later steps only read.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/input_recipe.h"
#include "runtime/session/session.h"

#include <vector>

namespace kvopt::driver {

/// Runs a first step for `batch` sequences. Recipes determine the inputs that they name; other
/// inputs are created like those of a decoder (runtime/session/decoder_inputs.h). The results have
/// the names of the model's read-only caches.
llvm::Expected<std::vector<runtime::NamedTensor>>
runFirstStep(const ir::Model& firstStep, int64_t batch, llvm::ArrayRef<ir::InputRecipe> recipes,
             unsigned threads, const Toolkit& toolkit);

} // namespace kvopt::driver
