// Guards of rows without any key that test the mask instead of the scores.
#pragma once

#include "passes/analysis/scores/score_chain.h"

namespace kvopt::analysis {

/// Whether every score of a row is -inf where every element of the row of `mask` is. Then a guard
/// that sets the probabilities of such rows to zero changes no other row. `mask` is the operand of
/// the softmax, or a mask that a step of `chain` adds and no later step cancels. If false,
/// `failure` holds the reason.
bool guardsHiddenRows(const ir::Value& mask, const ir::Value& scores, const ScoreChain& chain,
                      pattern::MatchFailure& failure);

} // namespace kvopt::analysis
