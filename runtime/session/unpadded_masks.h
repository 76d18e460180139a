// Masks that must not hide anything.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/exec/executor.h"

namespace kvopt::runtime {

/// A usage error where one of the masks that the manifest calls unpadded has an element that is 0.
llvm::Error checkUnpadded(const ir::Manifest& manifest, llvm::ArrayRef<NamedView> inputs);

} // namespace kvopt::runtime
