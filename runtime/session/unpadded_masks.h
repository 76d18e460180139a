// Masks that must not hide any position.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/exec/executor.h"

namespace kvopt::runtime {

/// A usage error unless each mask that the manifest lists as unpadded is 1 for each of the `tokens`
/// tokens in every batch row.
llvm::Error checkUnpadded(const ir::Manifest& manifest, llvm::ArrayRef<NamedView> inputs,
                          int64_t tokens);

} // namespace kvopt::runtime
