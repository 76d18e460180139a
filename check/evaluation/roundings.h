// Roundings: the nodes that turn rows into the codes of a cache.
#pragma once

#include "check/arithmetic/call.h"
#include "check/arithmetic/code_steps.h"
#include "meaning/facts/operator_facts.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::check {

/// Finds nodes that round rows on their way to caches of codes: a quotient is rounded and clamped
/// to constants, moved by a constant, packed with another one, and cast. Functions are looked into.
class Roundings {
public:
  explicit Roundings(const ir::Model& searched) : model(&searched) {}

  /// Adds the nodes that round the rows of a cache, which is a result of the model, to codes of at
  /// most `largest`. False if it is not computed in this way.
  bool add(const ir::Value& present, double largest);
  /// Whether all calls of the functions in question give caches that were added. Otherwise, other
  /// values are rounded by the same nodes.
  bool coverAllCalls() const;
  const CodeSteps& steps() const { return found; }

private:
  /// `caller` is the call of the function that the value is in; null in the model's graph.
  using Place = std::pair<const ir::Value*, const ir::Node*>;
  bool reachesRound(Place at);
  bool reachesRound(const ir::Node& node, const ir::Node* caller);
  bool reachesPacked(const ir::Node& sum, const ir::Node* caller);

  const ir::Model* model;
  meaning::OperatorFacts operators;
  double largestCode = 0;
  CodeSteps found;
  llvm::DenseMap<Place, bool> known;
  llvm::DenseMap<const ir::Function*, llvm::DenseSet<const ir::Node*>> calls;
};

/// Evaluates a node on the way to codes. A node that only rounds real numbers has them as its
/// result, and it is noted that the rounding is not looked at. Of packed codes, it is remembered
/// which ones are above the others.
Results evaluateCodes(Call& call, const CodeStep& step, Rule rule);

/// Why an equality of models with cached codes is not a proof.
inline constexpr const char* roundingGap = "the rounding of cached rows is not looked at";

} // namespace kvopt::check
