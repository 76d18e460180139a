// com.microsoft::MultiHeadAttention.
#pragma once

#include "engines/onnxruntime/operation.h"

namespace kvopt::onnxruntime {

/// Computes what runtime/kernels/attention/multi_head_attention.cc describes, without packed
/// operands, which ONNX Runtime does not compute on CPUs either.
Offer multiHeadAttention(const NodeDescription& node);

} // namespace kvopt::onnxruntime
