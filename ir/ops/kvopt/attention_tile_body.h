// The function body of ai.kvopt::AttentionTile (function_body.h).
#pragma once

#include "ir/element_type.h"

#include <cstdint>
#include <string>

namespace kvopt::ir {

/// The text of a function for `ai.kvopt::AttentionTile`; `state` is the element type of the state.
/// The attributes scale and softcap must be written on the node.
std::string attentionTileFunctionText(int64_t opset, ElementType state);

} // namespace kvopt::ir
