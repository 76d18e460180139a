// Checks that a model has the form that its manifest claims.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"

namespace kvopt::driver {

/// Checks that the model is valid, and that it uses the caches of `manifest`, which it carries, as
/// the manifest claims: a cache in one buffer is updated in place by an operator with that
/// definition, a cache in blocks is read, and growing caches are those that recovery finds. Other
/// claims of the manifest are checked by proveClaims, because anyone can write a manifest to a
/// file. The error names the cache.
llvm::Error proveRewritten(const ir::Model& model, const ir::Manifest& manifest,
                           const Toolkit& toolkit);

/// Checks the claims of `manifest`, which the model carries, that a rewrite for another target
/// keeps (ClaimScope::Carried).
llvm::Error proveCarried(const ir::Model& model, const ir::Manifest& manifest,
                         const Toolkit& toolkit);

} // namespace kvopt::driver
