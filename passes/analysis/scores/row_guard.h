// Guards of rows without any key, as they test the mask and not the scores.
#pragma once

#include "passes/analysis/scores/score_chain.h"

namespace kvopt::analysis {

/// Whether every score of a row is -inf where every element of the row of `mask` is, so that a
/// guard which sets the probabilities of such rows to zero changes no other row. `mask` is the
/// operand of the softmax, or a mask that a step of `chain` adds and that no later step lifts.
/// On false `failure` says why.
bool guardsHiddenRows(const ir::Value& mask, const ir::Value& scores, const ScoreChain& chain,
                      pattern::MatchFailure& failure);

} // namespace kvopt::analysis
