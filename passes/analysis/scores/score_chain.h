// The steps of decomposed attention between the product of queries and keys and the softmax.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/constraints.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace kvopt::analysis {

/// One step of a mask, applied to scores x.
struct MaskStep {
  enum class Kind {
    Add,      ///< x + operand
    Subtract, ///< x - operand
    Fill,     ///< operand ? x : number (keepsTrue), or operand ? number : x; the operand is
              ///< boolean, or holds zeros and ones
    Clamp,    ///< max(x, number), with a number that exceeds masked entries only
    Scale,    ///< x * number
    Divide,   ///< x / number
  };
  Kind kind;
  ir::Node* node = nullptr;
  ir::Value* operand = nullptr;
  double number = 0.0;
  bool keepsTrue = true;
};

/// A factor with one number per row of the scores, [B,H,S,1] or broadcast to it. It can be applied
/// to the queries instead.
struct RowFactor {
  ir::Value* value = nullptr;
  bool divides = false;
};

/// Scores = mask steps, in order, applied to
///   scale * (query x keysTransposed)                                    without a soft cap, or
///   softcap * tanh(scale * (query x keysTransposed) / softcap)          with one (softcap > 0),
/// where each row of the query is first multiplied by the row factors.
struct ScoreChain {
  ir::Node* product = nullptr;
  ir::Value* query = nullptr;          ///< [B,H,S,D]
  ir::Value* keysTransposed = nullptr; ///< [B,G,D,T]
  double scale = 1.0;
  double softcap = 0.0;
  llvm::SmallVector<RowFactor, 1> rowFactors;
  llvm::SmallVector<MaskStep, 4> mask;
  /// Every node of the chain, the product first.
  llvm::SmallVector<ir::Node*, 8> nodes;
};

/// Reads the chain backwards from the operand of the softmax. The product is a MatMul of rank 4.
/// Linear in the length of the chain; gives up with `step-budget` on one that branches too much.
std::optional<ScoreChain> readScoreChain(ir::Value& scores, pattern::MatchFailure& failure);

} // namespace kvopt::analysis
