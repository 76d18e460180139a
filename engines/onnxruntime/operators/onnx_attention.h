// Attention of ONNX's own operators, opset 23 and later.
#pragma once

#include "engines/onnxruntime/operation.h"

namespace kvopt::onnxruntime {

/// Computes what runtime/kernels/attention/attention.cc describes, for nodes that ONNX Runtime's
/// own kernel computes in the same way.
Offer onnxAttention(const NodeDescription& node);

} // namespace kvopt::onnxruntime
