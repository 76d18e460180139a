// How values are weighed where that is not one softmax for each head.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/reason.h"

#include <optional>

namespace kvopt::analysis {

/// What is done to the probabilities of a softmax before they weigh the values that no attention
/// operator does: softmaxes that are added or subtracted, heads that a constant matrix mixes,
/// factors that differ from key to key.
/// nullopt if there is nothing of the kind.
std::optional<pattern::MatchFailure> combinedProbabilities(const ir::Node& softmax);

/// Whether a constant matrix mixes the scores of several heads before the softmax; nullopt if not.
std::optional<pattern::MatchFailure> mixedScores(const ir::Node& softmax);

/// The second operand of the product of two computed tensors that the scores of a softmax are;
/// null if none is found.
const ir::Value* keysOfScores(const ir::Node& softmax);

/// Attention without a softmax: f(q x kt) x v, where f is elementwise, may mask, and may divide by
/// sums, or q x f(kt x v), where f may add it to a state; q, kt and v are computed from the model's
/// inputs. `weighing` is the second product.
/// Says what f is; that no rule raised it where it is a softmax in several operators. nullopt if
/// the node is another product, among them one that a Softmax weighs.
std::optional<pattern::MatchFailure> weighedWithoutSoftmax(const ir::Node& weighing);

} // namespace kvopt::analysis
