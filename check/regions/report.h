// Results of a check.
#pragma once

#include "check/caches/feeding.h"

#include <string>
#include <vector>

namespace kvopt::check {

enum class Verdict {
  Proved,        ///< equal by construction
  ProvedReduced, ///< equal in the whole scope, and an argument extends it to all sizes
  Tested,        ///< equal in the whole scope
  Different,
  Skipped, ///< not decided
};

/// Word of a verdict: `proved`, `proved-reduced`, `tested`, `different`, `skipped`.
const char* verdictWord(Verdict verdict);

/// What the comparison of two values shows.
struct Evidence {
  /// Why it is not decided or different, or which node has no argument for all sizes.
  std::string reason;
  /// Steps of the scope in which both were evaluated and compared.
  size_t steps = 0;
  size_t elements = 0; ///< elements that were compared in these steps
  /// Elements that may differ, because no result may depend on them.
  size_t hidden = 0;
  size_t nodesBefore = 0;
  size_t nodesAfter = 0;
  /// For a difference, the smallest step that shows it and the place of one element.
  Step counterexample;
  std::string place;
  std::string beforeElement;
  std::string afterElement;
  /// The value of the second model whose region was evaluated instead of this one, because both are
  /// equal except for names; empty if this one was evaluated.
  std::string evaluatedAs;

  /// Whether the counterexample names an element.
  bool hasElements() const { return !beforeElement.empty(); }
};

/// An output of the second model, or a part of it that was compared on its own.
struct Obligation : Evidence {
  std::string before; ///< the value of the first model
  std::string after;  ///< the value of the second model
  std::string node;   ///< description of the node that computes it
  bool isOutput = false;
  Verdict verdict = Verdict::Skipped;
};

struct CheckReport {
  size_t nodesBefore = 0;
  size_t nodesAfter = 0;
  size_t nodesAligned = 0; ///< nodes of the second model whose results have a class of the first
  /// Outputs, and the regions on which they depend, in the order of the second model's nodes.
  std::vector<Obligation> obligations;
  std::vector<std::string> assumptions;
  /// Parts of the interface that were not looked at.
  std::vector<std::string> notChecked;
  std::vector<Step> scope;
  /// Distinct regions that were evaluated. Regions that are equal except for names are one.
  size_t regionsEvaluated = 0;
  uint32_t modulusP = 0;
  uint32_t modulusQ = 0;
  unsigned seed = 0;

  /// The weakest verdict of all outputs. A difference is weaker than all others.
  Verdict verdict() const;
  size_t count(Verdict verdict) const;
};

} // namespace kvopt::check
