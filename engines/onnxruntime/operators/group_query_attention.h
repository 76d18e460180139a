// com.microsoft::GroupQueryAttention.
#pragma once

#include "engines/onnxruntime/operation.h"

namespace kvopt::onnxruntime {

/// Computes what runtime/kernels/attention/group_query_attention.cc describes.
Offer groupQueryAttention(const NodeDescription& node);

} // namespace kvopt::onnxruntime
