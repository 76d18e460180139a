// ai.kvopt's attention over given keys and values: Sdpa and, over codes, QuantizedSdpa.
#pragma once

#include "engines/onnxruntime/kvopt_operator.h"

namespace kvopt::onnxruntime {

/// Computes what ir/ops/kvopt/sdpa.cc defines.
Offer sdpa(const NodeDescription& node);
std::vector<OperatorTypes> sdpaTypes();

/// Computes what ir/ops/kvopt/quantized_sdpa.cc defines.
Offer quantizedSdpa(const NodeDescription& node);
std::vector<OperatorTypes> quantizedSdpaTypes();

} // namespace kvopt::onnxruntime
