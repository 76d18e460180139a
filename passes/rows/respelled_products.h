// The two products of attention, written anew as MatMul of [B,H,S,D], [B,H,S,T] and [B,H,T,D], from
// what was evaluated.
#pragma once

#include "passes/analysis/evaluation/attention_operands.h"
#include "passes/pattern/rewriter.h"
#include "passes/rows/respelled_rows.h"

namespace kvopt::rows {

/// Scores as `factor` times MatMul(queries, Transpose<0,1,3,2>(keys)).
struct RespelledScores {
  ir::Value* scores = nullptr; ///< [B,H,S,T], what is written anew
  RespelledRows queries, keys;
  double factor = 1;
};

/// The product of probabilities and values as a movement of MatMul(probabilities, values).
struct RespelledOutput {
  ir::Value* output = nullptr;        ///< of the product, what is written anew
  ir::Value* probabilities = nullptr; ///< [B,H,S,T]
  RespelledRows values;
  RespelledRows moved; ///< of the product [B,H,S,D]; `fresh` is not known
};

/// How the scores of a softmax are made. nullopt where they are spelled like that, where they are
/// something else, and where evaluations disagree.
std::optional<RespelledScores> respelledScores(ir::Node& softmax,
                                               const analysis::AttentionOperands& operands,
                                               analysis::StepEvaluations& evaluations);

/// The same of what a softmax's probabilities are multiplied with.
std::optional<RespelledOutput> respelledOutput(ir::Node& softmax,
                                               const analysis::AttentionOperands& operands,
                                               analysis::StepEvaluations& evaluations);

/// What stands for `scores`, or for `output`; null where an extent cannot be computed.
ir::Value* write(const RespelledScores& scores, pattern::Rewriter& rewriter);
ir::Value* write(const RespelledOutput& output, pattern::Rewriter& rewriter);

} // namespace kvopt::rows
