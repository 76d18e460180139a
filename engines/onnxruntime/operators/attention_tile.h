// ai.kvopt::AttentionTile: attention to some of the keys, merged with the result for earlier keys.
#pragma once

#include "engines/onnxruntime/kvopt_operator.h"

namespace kvopt::onnxruntime {

/// Computes what ir/ops/kvopt/attention_tile.cc defines.
Offer attentionTile(const NodeDescription& node);
std::vector<OperatorTypes> attentionTileTypes();

} // namespace kvopt::onnxruntime
