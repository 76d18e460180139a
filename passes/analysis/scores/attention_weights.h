// How values are weighed where that is not one softmax for each head.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/reason.h"

#include <optional>

namespace kvopt {

/// What is done to the probabilities of a softmax before they weigh the values that no attention
/// operator does: softmaxes that are added or subtracted, heads that a constant matrix mixes,
/// factors that differ from key to key.
/// nullopt if there is nothing of the kind.
std::optional<MatchFailure> combinedProbabilities(const Node& softmax);

/// Whether a constant matrix mixes the scores of several heads before the softmax; nullopt if not.
std::optional<MatchFailure> mixedScores(const Node& softmax);

/// The second operand of the product of two computed tensors that the scores of a softmax are;
/// null if none is found.
const Value* keysOfScores(const Node& softmax);

/// Attention without a softmax: f(q x kt) x v, where f is elementwise, may mask, and may divide by
/// sums, or q x f(kt x v), where f may add it to a state; q, kt and v are computed from the model's
/// inputs. `weighing` is the second product.
/// Says what f is; that no rule raised it where it is a softmax in several operators. nullopt if
/// the node is another product, among them one that a Softmax weighs.
std::optional<MatchFailure> weighedWithoutSoftmax(const Node& weighing);

} // namespace kvopt
