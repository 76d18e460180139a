// Models as recovery reads them, for proofs of their manifests.
#pragma once

#include "driver/recover.h"
#include "ir/manifest/manifest.h"

namespace kvopt::driver {

/// Recovers a copy of a model with inferred types and caches of any form: rows of codes are read as
/// the numbers that they represent, and shared buffers as growing caches.
llvm::Expected<RecoveredModel> readModel(const ir::Model& model, const ir::Manifest& manifest,
                                         const Toolkit& toolkit);

/// Recovers a copy for questions about the rows of queries, keys and values only: masks are left
/// out (`read-cached-rows`), and in a model with branches only the branch with a past is read.
llvm::Expected<RecoveredModel> readRows(const ir::Model& model, const ir::Manifest& manifest,
                                        const Toolkit& toolkit);

} // namespace kvopt::driver
