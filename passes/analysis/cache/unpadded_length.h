// Lengths computed from a mask, for a mask that hides no key.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/SetVector.h"

#include <optional>

namespace kvopt::analysis {

/// The number that every element of a tensor equals.
struct UnpaddedLength {
  ir::Dim length;
  /// Masks that the number is computed from: integer inputs [batch, keys].
  llvm::SmallSetVector<const ir::Value*, 2> masks;
};

/// The elements of an integer tensor if each integer input [batch, keys] that they are computed
/// from consists of ones, `past` plus `tokens` of them per batch row. An input with one column per
/// token of the step is not a mask. nullopt if the number is not provable.
std::optional<UnpaddedLength> unpaddedLength(const ir::Value& value, const ir::Dim& past,
                                             const ir::Dim& tokens);

} // namespace kvopt::analysis
