// The operands of attention that is written as products and a softmax.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

namespace kvopt::analysis {

/// The operands of the products before and after a softmax. Which of the first product is of
/// queries is not told.
struct AttentionOperands {
  ir::Value* scoresLeft = nullptr;
  ir::Value* scoresRight = nullptr;
  ir::Value* values = nullptr;
};

/// Follows the softmax's operand back, and its result forward, through operators that move elements
/// or compute each from those at its place, up to products of two values that are no numbers.
/// nullopt where there is not one such product on either side.
std::optional<AttentionOperands> attentionOperands(ir::Node& softmax, Evaluation& evaluation);

} // namespace kvopt::analysis
