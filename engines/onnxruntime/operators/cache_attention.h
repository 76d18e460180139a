// ai.kvopt's attention operators over buffers, rings and blocks.
#pragma once

#include "engines/onnxruntime/kvopt_operator.h"
#include "ir/ops/kvopt/cache_operands.h"

namespace kvopt::onnxruntime {

/// Computes what ir/ops/kvopt/cache_operators.cc defines.
Offer cacheAttention(const NodeDescription& node);

/// Element types of one operator.
std::vector<OperatorTypes> cacheAttentionTypes(const ir::CacheOperatorForm& form);

} // namespace kvopt::onnxruntime
