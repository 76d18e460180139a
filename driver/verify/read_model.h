// ReadModel: a model as recovery reads it, for the proof of what its manifest says.
#pragma once

#include "driver/recover.h"
#include "ir/manifest/manifest.h"

namespace kvopt::driver {

/// Recovers a copy of a model with inferred types, whatever form its caches have: rows of codes are
/// read as the numbers that they represent, and shared buffers as caches that grow.
llvm::Expected<RecoveredModel> readModel(const ir::Model& model, const ir::Manifest& manifest,
                                         const Toolkit& toolkit);

/// The same where only the rows of queries, keys and values matter: masks are left out
/// (`read-cached-rows`), and of a model in branches only the one that reads a past is read.
llvm::Expected<RecoveredModel> readRows(const ir::Model& model, const ir::Manifest& manifest,
                                        const Toolkit& toolkit);

} // namespace kvopt::driver
