// FilePlace: where a file holds the contents of a constant.
#pragma once

#include "ir/tensor.h"
#include "support/mapped_file.h"

#include <optional>

namespace kvopt::ir {

struct FilePlace {
  FileIdentity file;
  uint64_t offset = 0; ///< in bytes
  uint64_t length = 0; ///< in bytes
};

/// Place of external contents. nullopt for other constants, and if the file is unavailable. Reads
/// no contents.
std::optional<FilePlace> filePlaceOf(const TensorData& tensor);

} // namespace kvopt::ir
