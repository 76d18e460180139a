// Whether a model that says it was rewritten is in the form that it says.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"

namespace kvopt::driver {

/// Checks that the model is valid, and that it treats the caches of `manifest`, which
/// it carries, as the manifest says: a cache in one buffer is updated in place by an operator that
/// is defined to do so, a cache in blocks is read, and caches that grow are those that recovery
/// finds. Other claims of the manifest are checked as proveClaims does. Anyone can write a manifest
/// into a file. The error names the cache.
llvm::Error proveRewritten(const ir::Model& model, const ir::Manifest& manifest,
                           const Toolkit& toolkit);

/// Checks what a rewrite for another target takes over of `manifest`, which the model carries
/// (ClaimScope::Carried).
llvm::Error proveCarried(const ir::Model& model, const ir::Manifest& manifest,
                         const Toolkit& toolkit);

} // namespace kvopt::driver
