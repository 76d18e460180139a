// Checks that a model has the form that its manifest claims.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"

namespace kvopt::driver {

/// Checks that the model is valid, and that it uses the caches of `manifest`, which it carries, as
/// the manifest claims: an operator that is defined to do so updates a cache in one buffer in
/// place, attention reads a cache in blocks, and growing caches are those that recovery finds.
/// Anyone can write a manifest to a file, so proveClaims checks its other claims. The error names
/// the cache.
llvm::Error proveRewritten(const ir::Model& model, const ir::Manifest& manifest,
                           const Toolkit& toolkit);

/// Checks those claims of the model's `manifest` that a rewrite for another target keeps
/// (ClaimScope::Carried).
llvm::Error proveCarried(const ir::Model& model, const ir::Manifest& manifest,
                         const Toolkit& toolkit);

/// Does the same for a model that will be rewritten. If all that is not proved is that results of
/// rows that see no key are undefined, they are no longer: `manifest` and the model's metadata then
/// leave the claim out, and the rewrite keeps what the graph computes for these rows.
llvm::Error takeOver(ir::Model& model, ir::Manifest& manifest, const Toolkit& toolkit);

} // namespace kvopt::driver
