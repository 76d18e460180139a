// Tensors whose elements all equal one known number, in any form.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace kvopt::analysis {

/// The number that every element of a float, integer or boolean tensor equals: small constants of
/// equal elements, ConstantOfShape, and casts and data movement of such tensors. nullopt if that is
/// not provable within a few steps.
std::optional<double> uniformValue(const ir::Value& value);

/// `number` as a tensor of element type `type` stores it; nullopt for a type that is not floating
/// point. Values out of range become infinite.
std::optional<double> roundedTo(ir::ElementType type, double number);

} // namespace kvopt::analysis
