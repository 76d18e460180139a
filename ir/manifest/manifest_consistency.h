// Whether the objects of a manifest fit together.
#pragma once

#include "ir/manifest/manifest.h"

namespace kvopt::ir {

/// Checks what concerns several objects: names, rotations, variants, tiles and pools. Each object
/// is right by itself.
llvm::Error checkConsistency(const Manifest& manifest);

} // namespace kvopt::ir
