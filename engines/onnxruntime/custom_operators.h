// ai.kvopt's operators as ONNX Runtime's custom operators, for engines before execution providers
// were plugins, and for files whose operators have no function bodies.
#pragma once

#include "engines/onnxruntime/engine_api.h"

namespace kvopt::onnxruntime {

/// Adds the domain with all operators to the options of a session. Throws the engine's errors.
void addCustomOperators(OrtSessionOptions* options);

} // namespace kvopt::onnxruntime
