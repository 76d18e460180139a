// Equivalence: two models run the same session, each according to its own manifest, and are
// compared at every step.
#pragma once

#include "runtime/equivalence/planned_steps.h"
#include "runtime/equivalence/reference.h"

namespace kvopt::runtime {

/// Twin of the original with all numbers in f32 (`widen`), and the original's rounding.
struct ExactSession {
  Session& session;
  double unitRoundoff = 0;
};

/// The models cannot start from the same synthetic rows (`presetAlike`).
class PresetError : public llvm::ErrorInfo<PresetError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<PresetError, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// Runs both new sessions through the plan with the same inputs. Compares every output and the
/// valid region of every cache at every step, paired by name; caches without a counterpart of that
/// name are paired by layer and role. Differences of the interfaces (`interfaceDifferences`), and a
/// step that only the second model refuses, are differences. Fails if the first step of the first
/// model fails, and with a PresetError if the plan starts from synthetic rows and the models
/// cannot.
///
///  Hidden positions are compared like all others, because both models compute the same results
///  there. Tokens that see no token are skipped if a manifest says that their results may differ
///  (hidden_rows), or if a twin shows that the first model computes in 16 bits: its scores are lost
///  next to the finite number that hides a key.
///
///  In batch rows with a token that sees no token, elements that are NaN in the first model and
///  numbers in the second are left out and counted (TensorComparison::nanInFirst): the first model
///  divides zero by zero there, and computes NaN from NaN afterwards.
///
///  For models without caches, each length of the plan is run once, unless all inputs have the
///  extents of an earlier run. If only the second model has caches, the first one receives all
///  tokens at every step, and its results for the new ones are compared.
///
///  If the first model refuses a step after the first, the step is skipped and counted, because
///  limits of lengths only show when they are reached. If the second model takes such a step, the
///  run ends.
///
///  With `exact`, the tolerance of each tensor at each step follows from the original's own
///  rounding. Let x be the twin's tensor and e = max |a - x|, measured. A model that rounds the
///  same numbers in another order has a similar distance from x, so that
///
///   |b - a| <= |b - x| + |x - a| <= 2 e + u max |x|,   u the unit roundoff,
///
/// where the last term allows a result that is exact in `a` to be rounded once in `b`. The plan's
/// tolerance remains an upper bound.
///
///  `firstOfB` is a session of the model that b's manifest names as its first step. It is run once,
///  on inputs of `a`; `b` receives its results at every step, and `a` receives the same inputs at
///  every later step.
llvm::Expected<ComparisonReport> compareSessions(Session& a, Session& b,
                                                 const EquivalencePlan& plan,
                                                 std::optional<ExactSession> exact = {},
                                                 Session* firstOfB = nullptr);

/// Number of token ids: the number of rows of the embedding table or, if that is not found, of
/// scores; 1 for a model without token ids (by name or by `described`). An error if neither is
/// fixed.
llvm::Expected<int64_t> vocabularyOf(const ir::Graph& graph,
                                     llvm::ArrayRef<ir::ManifestInput> described = {});

} // namespace kvopt::runtime
