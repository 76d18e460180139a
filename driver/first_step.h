// First step of an encoder-decoder model: a separate model with the computation that is needed once
// for each encoded sequence.
#pragma once

#include "driver/model_source.h"
#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"

#include <memory>

namespace kvopt::driver {

/// The first-step model that `manifest` names; null if it names none. `source` is the model with
/// that manifest. Fails if the file cannot be read. Also fails unless the first step's outputs are
/// exactly the caches that the manifest declares read-only: names, element types, ranks, and all
/// extents except those of tokens must agree.
llvm::Expected<std::unique_ptr<ir::Model>>
openFirstStep(const ModelSource& source, const ir::Manifest& manifest, const Toolkit& toolkit);

/// Whether the graph has an input called `name`.
bool hasInput(const ir::Graph& graph, llvm::StringRef name);

} // namespace kvopt::driver
