// Function body of ai.kvopt::AttentionTile (function_body.h).
#pragma once

#include "ir/element_type.h"

#include <cstdint>
#include <string>

namespace kvopt::ir {

/// Text of a function for `ai.kvopt::AttentionTile`; `state` is the element type of the state.
/// Nodes must have the attributes scale and softcap.
std::string attentionTileFunctionText(int64_t opset, ElementType state);

} // namespace kvopt::ir
