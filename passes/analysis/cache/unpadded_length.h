// Lengths that are counted by a mask, where the mask shows every key.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/SetVector.h"

#include <optional>

namespace kvopt::analysis {

/// A number that every element of a tensor has.
struct UnpaddedLength {
  ir::Dim length;
  /// The masks that it is counted by: integer inputs [batch, keys].
  llvm::SmallSetVector<const ir::Value*, 2> masks;
};

/// The elements of an integer tensor where each integer input [batch, keys] that they are computed
/// from is ones, `past` and `tokens` of them for each batch row. An input with one column for each
/// token of the step is not taken for a mask. nullopt where the number is not provable.
std::optional<UnpaddedLength> unpaddedLength(const ir::Value& value, const ir::Dim& past,
                                             const ir::Dim& tokens);

} // namespace kvopt::analysis
