// FunctionDigest: identifies the computation of a function, independently of its spelling.
#pragma once

#include "ir/model.h"

#include <array>
#include <cstdint>
#include <optional>

namespace kvopt::ir {

/// A SHA-256 of the operators, attributes, constants, and connections that lead to the outputs.
using FunctionDigest = std::array<uint8_t, 32>;

/// Digest of a function's signature and body. It ignores names of values, the order of independent
/// nodes, nodes that no output depends on, the spelling of constants, metadata, documentation,
/// Identity nodes, Transpose nodes that keep the order of axes, the name of the function, and the
/// versions of its operator sets. nullopt for a body with subgraphs, with constants of more than
/// 4096 bytes, or with attributes that kvopt does not interpret. Linear in the size of the body.
std::optional<FunctionDigest> functionDigest(const Function& function);

} // namespace kvopt::ir
