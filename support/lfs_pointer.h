// Pointer files of Git LFS, which name large files that were not downloaded.
#pragma once

#include "llvm/Support/Error.h"

#include <cstddef>
#include <span>

namespace kvopt {

/// An error that names the remedy, if the bytes are those of a pointer file.
llvm::Error checkNoLfsPointer(std::span<const std::byte> bytes);

} // namespace kvopt
