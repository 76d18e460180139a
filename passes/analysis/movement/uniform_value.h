// Tensors whose elements are all one known number, however they are spelled.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace kvopt::analysis {

/// The one number that every element of a float, integer or boolean tensor has: small constants of
/// equal elements, ConstantOfShape, and casts and data movement of such. nullopt when that is not
/// provable within a few steps.
std::optional<double> uniformValue(const ir::Value& value);

/// `number` as a tensor of element type `type` stores it; nullopt for a type that is not floating
/// point. Values beyond the range become infinite.
std::optional<double> roundedTo(ir::ElementType type, double number);

} // namespace kvopt::analysis
