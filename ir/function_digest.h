// FunctionDigest: what a function computes, however it is written down.
#pragma once

#include "ir/model.h"

#include <array>
#include <cstdint>
#include <optional>

namespace kvopt::ir {

/// A SHA-256 over the operators, attributes, constants, and connections that lead to the outputs.
using FunctionDigest = std::array<uint8_t, 32>;

/// The digest of a function's signature and body. Names of values, the order of independent nodes,
/// nodes that no output depends on, how a constant is spelled, metadata, and documentation do not
/// count; neither do an Identity and a Transpose that leaves every axis where it is. The name of
/// the function and the versions of its operator sets do not count either. nullopt for a body with
/// subgraphs, with constants of more than 4096 bytes, or with attributes that kvopt does not
/// interpret. The cost is linear in the body.
std::optional<FunctionDigest> functionDigest(const Function& function);

} // namespace kvopt::ir
