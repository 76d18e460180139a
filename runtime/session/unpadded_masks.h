// Masks that must not hide anything.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/exec/executor.h"

namespace kvopt::runtime {

/// A usage error where one of the masks that the manifest calls unpadded is not a one for each of
/// `tokens` tokens in every batch row.
llvm::Error checkUnpadded(const ir::Manifest& manifest, llvm::ArrayRef<NamedView> inputs,
                          int64_t tokens);

} // namespace kvopt::runtime
