// Attention that no rule raised, recognized roughly enough to be reported as missed.
#pragma once

#include "ir/graph.h"

namespace kvopt::analysis {

/// Whichever way its probabilities are written.
bool isSoftmax(const ir::Node& node);

/// Whether a softmax normalizes scores that come from a product of two computed matrices and go
/// into another. Routers and samplers do not.
bool isAttentionLike(const ir::Node& softmax);

} // namespace kvopt::analysis
