// Rough recognition of attention that no rule raised, in order to report it as missed.
#pragma once

#include "ir/graph.h"

namespace kvopt::analysis {

/// Whether the node computes a softmax, in any form.
bool isSoftmax(const ir::Node& node);

/// Whether a softmax normalizes scores from a product of two computed matrices and its result goes
/// into another product. This excludes routers and samplers.
bool isAttentionLike(const ir::Node& softmax);

} // namespace kvopt::analysis
