// Removal of list items in chunks: delta debugging.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Tries to remove a chunk of items; true if they are removed.
using ChunkTrial = llvm::function_ref<llvm::Expected<bool>(llvm::ArrayRef<std::string> chunk)>;

/// Removes the items that a trial removes: first in one chunk of at most `largest` items, then in
/// halves, quarters, and so on, to single items. Chunks are contiguous, and the last ones are tried
/// first. A size is tried again while it removes something. Returns the items that remain.
llvm::Expected<std::vector<std::string>> removeInChunks(std::vector<std::string> items,
                                                        size_t largest, ChunkTrial trial);

} // namespace kvopt::driver
