// What an encoder-decoder model computes once for an encoded sequence, in a model beside its own.
#pragma once

#include "driver/model_source.h"
#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"
#include "runtime/session/input_recipe.h"
#include "runtime/session/session.h"

#include <memory>
#include <string>
#include <vector>

namespace kvopt::driver {

/// The model that the manifest of the model from `source` calls its first step; null where it has
/// none. Fails where the file cannot be read, and where the model's outputs are not exactly the
/// caches that the manifest says are only read: their names, element types, ranks, and extents but
/// for those of tokens.
llvm::Expected<std::unique_ptr<ir::Model>>
openFirstStep(const ModelSource& source, const ir::Manifest& manifest, const Toolkit& toolkit);

/// Whether the graph has an input of that name.
bool hasInput(const ir::Graph& graph, llvm::StringRef name);

/// Runs a first step for `batch` sequences. Its inputs are made as those of a decoder
/// (runtime/session/decoder_inputs.h), after those of the recipes that name one. The results have
/// the names of the caches that the model only reads.
llvm::Expected<std::vector<runtime::NamedTensor>>
runFirstStep(const ir::Model& firstStep, int64_t batch,
             llvm::ArrayRef<runtime::InputRecipe> recipes, unsigned threads,
             const Toolkit& toolkit);

} // namespace kvopt::driver
