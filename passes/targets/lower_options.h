// What the user decides of a lowered model, beyond its target.
#pragma once

#include "ir/element_type.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kvopt::targets {

struct LowerOptions {
  /// Capacity of shared buffers; nullopt leaves it symbolic.
  std::optional<int64_t> capacity;
  /// Layers to lower; empty: all.
  std::vector<unsigned> layers;
  /// The number after the target's name, as in `blocks:512`; Target::defaultSize without one.
  int64_t size = 0;
  /// The element type of the state between tiles: Float or Float16.
  ir::ElementType state = ir::ElementType::Float;
};

/// The capacity that a text says: a number of rows, or `dynamic`, which is nullopt.
llvm::Expected<std::optional<int64_t>> parseCapacity(llvm::StringRef text);

/// The layers that a text lists, as `0-3` or `7` or, with the separator `+`, `0-3+7`.
llvm::Expected<std::vector<unsigned>> parseLayers(llvm::StringRef text, char separator);

} // namespace kvopt::targets
