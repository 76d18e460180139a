// Operators that compute with 8-bit codes of floating-point numbers.
#pragma once

#include "ir/graph.h"

namespace kvopt::analysis {

/// Whether a node quantizes, dequantizes, or computes with codes.
bool worksOnCodes(const ir::Node& node);

/// The second factor of a matrix product of numbers or codes; null for other nodes. The first
/// factor is operand 0.
const ir::Value* secondFactor(const ir::Node& node);

} // namespace kvopt::analysis
