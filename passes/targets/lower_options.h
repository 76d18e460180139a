// User options of lowering, apart from the target.
#pragma once

#include "ir/element_type.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kvopt::targets {

struct LowerOptions {
  /// Capacity of shared buffers in rows; nullopt keeps it symbolic.
  std::optional<int64_t> capacity;
  /// Layers to lower; empty for all.
  std::vector<unsigned> layers;
  /// The number after the target's name, as in `blocks:512`; Target::defaultSize if there is none.
  int64_t size = 0;
  /// The element type of the state between tiles: Float or Float16.
  ir::ElementType state = ir::ElementType::Float;
};

/// Parses a capacity: a number of rows, or `dynamic`, which yields nullopt.
llvm::Expected<std::optional<int64_t>> parseCapacity(llvm::StringRef text);

/// Parses a list of layers: `0-3`, `7` or, with the separator `+`, `0-3+7`.
llvm::Expected<std::vector<unsigned>> parseLayers(llvm::StringRef text, char separator);

/// Error for a layer that a model with `count` attention layers does not have.
llvm::Error noSuchLayer(unsigned layer, size_t count);

} // namespace kvopt::targets
