// Whether a model that says it was rewritten is in the form that it says.
#pragma once

#include "cli/command.h"
#include "ir/manifest.h"

namespace kvopt {

/// Checks that the model in the file is valid, and that it treats the caches of `manifest`, which
/// it carries, as the manifest says: a cache in one buffer is updated in place by an operator that
/// is defined to do so, a cache in blocks is read, and caches that grow are those that recovery
/// finds. Anyone can write a manifest into a file. The error names the cache.
llvm::Error proveRewritten(const std::string& path, const Manifest& manifest,
                           const Registries& registries);

} // namespace kvopt
