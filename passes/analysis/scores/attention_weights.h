// Weights of values that are not one softmax per head.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/reason.h"

#include <optional>

namespace kvopt::analysis {

/// A change of the probabilities between a softmax and the values that no attention operator
/// supports: softmaxes that are added or subtracted, heads that a constant matrix mixes, factors
/// that differ between keys. nullopt if there is none.
std::optional<pattern::MatchFailure> combinedProbabilities(const ir::Node& softmax);

/// A failure if a constant matrix mixes the scores of several heads before the softmax; nullopt
/// otherwise.
std::optional<pattern::MatchFailure> mixedScores(const ir::Node& softmax);

/// The second operand of the product of two computed tensors that yields the scores of a softmax;
/// null if there is none.
const ir::Value* keysOfScores(const ir::Node& softmax);

/// A failure for attention without a softmax: f(q x kt) x v, where f is elementwise, may mask, and
/// may divide by sums, or q x f(kt x v), where f may add to a state; q, kt and v are computed from
/// the model's inputs. `weighing` is the second product. The failure describes f, or says that no
/// rule raised a softmax written in several operators. nullopt if the node is another product, also
/// if a Softmax weighs it.
std::optional<pattern::MatchFailure> weighedWithoutSoftmax(const ir::Node& weighing);

} // namespace kvopt::analysis
