// Operands of attention that is written as products and a softmax.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

namespace kvopt::analysis {

/// The products before and after a softmax. Which factor of the first product holds the queries is
/// unknown.
struct AttentionOperands {
  ir::Node* scores = nullptr;
  ir::Node* output = nullptr;
  bool hasValuesLeft = false; ///< the values are the left factor of `output`, not the right one
};

/// Follows the softmax's operand back, and its result forward, through operators that move elements
/// or compute each element from those at its position. The search ends at a product of two values
/// that both depend on unknown elements. nullopt unless there is exactly one such product on each
/// side.
std::optional<AttentionOperands> attentionOperands(ir::Node& softmax, Evaluation& evaluation);

} // namespace kvopt::analysis
