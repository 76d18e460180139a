// Function bodies of operators over rows of codes that other operators place (function_body.h).
#pragma once

#include "ir/ops/kvopt/function_body.h"

namespace kvopt::ir {

/// The text of a function for `ai.kvopt::QuantizeRows`.
std::string quantizeRowsFunctionText(int64_t opset);

/// The same for `ai.kvopt::QuantizedSdpa`, with the attribute v_width as well.
std::string quantizedSdpaFunctionText(const BodyForm& form);

} // namespace kvopt::ir
