// The operators between the product of queries and keys and the softmax, one by one.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/constraints.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace kvopt::analysis {

/// One operator on the path, with the operand that receives the scores.
struct ScoreStep {
  enum class Kind {
    Multiply,
    Divide,
    MultiplyRows,
    DivideRows,
    Tanh,
    Add,
    Subtract,
    Fill,
    Clamp,
    Pass
  };
  Kind kind = Kind::Pass;
  ir::Node* node = nullptr;
  ir::Value* other = nullptr; // the mask, the condition or the row factor
  double number = 0.0;
  bool keepsTrue = true;
};

/// The path from a softmax back to the product.
struct ScoreSteps {
  ir::Node* product = nullptr;
  /// The step next to the softmax comes first.
  llvm::SmallVector<ScoreStep, 8> steps;
};

/// Reads backwards from the operand of the softmax. The product is a MatMul of rank 4. The cost is
/// linear in the length of the path; gives up with `step-budget` on a path with too many branches.
std::optional<ScoreSteps> readScoreSteps(ir::Value& scores, pattern::MatchFailure& failure);

} // namespace kvopt::analysis
