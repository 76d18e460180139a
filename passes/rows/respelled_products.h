// The two products of attention, rewritten as MatMul of [B,H,S,D], [B,H,S,T] and [B,H,T,D], based
// on evaluation.
#pragma once

#include "passes/analysis/evaluation/attention_operands.h"
#include "passes/pattern/rewriter.h"
#include "passes/rows/respelled_rows.h"

namespace kvopt::rows {

/// Scores as `factor` times MatMul(queries, Transpose<0,1,3,2>(keys)).
struct RespelledScores {
  ir::Value* scores = nullptr; ///< [B,H,S,T], the value to replace
  RespelledRows queries, keys;
  double factor = 1;
};

/// The product of probabilities and values as a movement of MatMul(probabilities, values).
struct RespelledOutput {
  ir::Value* output = nullptr;        ///< result of the product, the value to replace
  ir::Value* probabilities = nullptr; ///< [B,H,S,T]
  RespelledRows values;
  RespelledRows moved; ///< movement of the product [B,H,S,D]; `fresh` is unknown
};

/// Composition of the scores of a softmax. nullopt if they have the canonical form already, if they
/// are not such a product, or if evaluations disagree.
std::optional<RespelledScores> respelledScores(ir::Node& softmax,
                                               const analysis::AttentionOperands& operands,
                                               analysis::StepEvaluations& evaluations);

/// The same for the product of a softmax's probabilities with values.
std::optional<RespelledOutput> respelledOutput(ir::Node& softmax,
                                               const analysis::AttentionOperands& operands,
                                               analysis::StepEvaluations& evaluations);

/// The replacement of `scores`, or of `output`; null if an extent cannot be computed.
ir::Value* write(const RespelledScores& scores, pattern::Rewriter& rewriter);
ir::Value* write(const RespelledOutput& output, pattern::Rewriter& rewriter);

} // namespace kvopt::rows
