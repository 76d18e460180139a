// The operands of attention that is written as products and a softmax.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

namespace kvopt::analysis {

/// The products before and after a softmax. Which operand of the first is of queries is not told.
struct AttentionOperands {
  ir::Node* scores = nullptr;
  ir::Node* output = nullptr;
  unsigned valueOperand = 1; ///< of `output`; the other one are the probabilities
};

/// Follows the softmax's operand back, and its result forward, through operators that move elements
/// or compute each from those at its place, up to products of two values that are no numbers.
/// nullopt where there is not one such product on either side.
std::optional<AttentionOperands> attentionOperands(ir::Node& softmax, Evaluation& evaluation);

} // namespace kvopt::analysis
