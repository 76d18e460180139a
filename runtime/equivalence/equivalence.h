// Equivalence: two models run the same session, each under its own contract, and are compared at
// every step.
#pragma once

#include "runtime/equivalence/planned_steps.h"
#include "runtime/equivalence/reference.h"

namespace kvopt::runtime {

/// The original's twin whose numbers are all f32 (`widen`), and what the original rounds to.
struct ExactSession {
  Session& session;
  double unitRoundoff = 0;
};

/// The two models cannot start from the same made-up rows (`presetAlike`).
class PresetError : public llvm::ErrorInfo<PresetError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<PresetError, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// Runs both fresh sessions through the plan with the same inputs: every output and the valid
/// region of every cache at every step, paired by name, caches that have none by layer and role.
/// What the interfaces have not in common is a difference (`interfaceDifferences`), and so is a
/// step that only the second one refuses. Fails where the first step of the first one does, and
/// with a PresetError where the plan starts from made-up rows and the models cannot.
///
/// Positions that are hidden are compared like all others: the two models compute the same thing
/// there too. Tokens that see none are left out where a manifest says that their results may differ
/// (hidden_rows), and where a twin shows that the first model computes in 16 bits: beside the
/// finite number that hides a key its scores are lost.
///
/// Models without caches remember nothing: each length of the plan is run once, and not again where
/// all inputs have the extents of an earlier run. Where only the second model has caches, the first
/// one is fed all tokens at every step, and its results for the new ones are compared.
///
/// A step after the first that the first model refuses is left out and counted, for lengths have
/// limits that only show when they are reached. Where the second one takes it, the run ends.
///
/// With `exact` the tolerance of each tensor at each step is what the original's own rounding
/// explains. Let x be the twin's tensor and e = max |a - x|, measured. A model that rounds the same
/// numbers in another order is as far from x, so that
///
///   |b - a| <= |b - x| + |x - a| <= 2 e + u max |x|,   u the unit roundoff,
///
/// where the last term lets a result that is exact in `a` be rounded once in `b`. The plan's
/// tolerance stays an upper bound.
///
/// With `firstOfB`, a session of the model that b's manifest calls the first step, that is run
/// once, on what `a` is fed; `b` is fed its results, and `a` the same inputs at every later step.
llvm::Expected<ComparisonReport> compareSessions(Session& a, Session& b,
                                                 const EquivalencePlan& plan,
                                                 std::optional<ExactSession> exact = {},
                                                 Session* firstOfB = nullptr);

/// The number of rows of the embedding table or, where that is not found, of the scores: how many
/// token ids there are; 1 for a model without token ids, by name or by `described`. An error when
/// neither is fixed.
llvm::Expected<int64_t> vocabularyOf(const ir::Graph& graph,
                                     llvm::ArrayRef<ir::ManifestInput> described = {});

} // namespace kvopt::runtime
