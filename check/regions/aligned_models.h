// AlignedModels: two models, and what is known of their values before any comparison.
#pragma once

#include "check/regions/stops.h"

namespace kvopt::check {

/// Both models of a check with the arithmetic of its steps. Values that are computed in the same
/// way have one class; inputs of one name and contents do, too.
struct AlignedModels {
  AlignedModels(Feeding& inputs, const RuleTable& table, std::vector<Step> scope, unsigned seed,
                int64_t mostWork);
  Classes& classes(bool isAfter) { return isAfter ? classesAfter : classesBefore; }

  Feeding& feeding;
  const RuleTable& rules;
  std::vector<Step> steps;
  Arithmetic math;
  ConstantDigests digests;
  Classes classesBefore;
  Classes classesAfter;
  Forms forms;
  Shapes shapes;
  Leaves leaves;
  Stops stops;
  /// Why the results of the first node without a rule are assumed; empty if all have one.
  std::string firstDoubt;

private:
  void indexInputs();
  /// Whether an input of both models has the same contents in all steps.
  bool isSameInput(const ir::Value& before, const ir::Value& after);
  bool isUnruled(const ir::Node& node) const;
  /// Finds the values of the first model whose shapes or kinds are assumed.
  void collectDoubts(const ir::Graph& graph);
};

} // namespace kvopt::check
