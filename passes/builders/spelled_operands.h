// Queries, keys and values of decomposed attention, as operands of ai.kvopt::Sdpa.
#pragma once

#include "passes/analysis/scores/score_chain.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::builders {

/// All three have one element type. Sdpa computes in f32 for every storage type, so casts of
/// narrower operands to f32 are dropped, and casts of f32 to double as well.
struct SpelledOperands {
  ir::Value* query = nullptr;          ///< [B,H,S,D], before the row factors
  ir::Value* keyRows = nullptr;        ///< [B,G,T,D]; null when `keysTransposed` is set
  ir::Value* keysTransposed = nullptr; ///< [B,G,D,T]
  ir::Value* values = nullptr;         ///< [B,G,T,Dv]

  ir::ElementType elementType() const { return values->type().elementType(); }
};

/// Fails with `dtype-mix` if the types differ, and with the reason of the shape if the products
/// broadcast batches or heads in a way that Sdpa does not.
std::optional<SpelledOperands> planOperands(const analysis::ScoreChain& chain, ir::Value& values,
                                            pattern::MatchFailure& failure);

/// [B,H,S,D], multiplied by the chain's row factors.
ir::Value& buildQuery(const SpelledOperands& operands, const analysis::ScoreChain& chain,
                      pattern::Rewriter& rewriter);
/// [B,G,T,D].
ir::Value& buildKeys(const SpelledOperands& operands, pattern::Rewriter& rewriter);

} // namespace kvopt::builders
