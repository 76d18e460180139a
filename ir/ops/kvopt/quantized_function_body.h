// Function bodies of operators over quantized rows that other operators store (function_body.h).
#pragma once

#include "ir/ops/kvopt/function_body.h"

namespace kvopt::ir {

/// Text of a function for `ai.kvopt::QuantizeRows`.
std::string quantizeRowsFunctionText(int64_t opset);

/// Text of a function for `ai.kvopt::QuantizedSdpa`, which also has the attribute v_width.
std::string quantizedSdpaFunctionText(const BodyForm& form);

} // namespace kvopt::ir
