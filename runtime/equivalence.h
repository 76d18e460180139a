// Equivalence: two models run the same session, each under its own contract, and are compared at
// every step.
#pragma once

#include "runtime/decoder_inputs.h"
#include "runtime/reference.h"

#include <random>

namespace kvopt {

enum class Padding { None, Left, Right };

struct EquivalencePlan {
  int64_t prompt = 33;
  std::vector<int64_t> chunks = {16, 1, 7};
  int64_t decodeSteps = 64;
  /// Tokens of a decode step; more than one for models that take no single ones.
  int64_t stepTokens = 1;
  int64_t batch = 2;
  /// Every second batch row has its first (Left) or last (Right) prompt positions hidden.
  Padding padding = Padding::None;
  /// Rows that every cache has before the first step, made up (`Session::preset`): of models whose
  /// caches have a fixed extent, which take no other number. No padding then.
  int64_t pastRows = 0;
  /// What the user says that inputs are to be fed.
  std::vector<InputRecipe> recipes;
  uint64_t seed = 1;
  /// Token ids are drawn from 0 … vocabulary-1.
  int64_t vocabulary = 0;
  Tolerance tolerance{1e-4, 1e-4};

  int64_t totalTokens() const;
};

/// The tokens of a plan, step by step: the same for the same seed.
class PlannedSteps {
public:
  explicit PlannedSteps(const EquivalencePlan& steps);

  /// The next step, of `tokens` tokens behind `pastLength` ones; `startsAnew` for a model that
  /// remembers nothing.
  DecoderStep next(int64_t tokens, int64_t pastLength, bool startsAnew);

  /// Whether the positions up to `position` of a batch row are shown (1) or hidden (0). Requires a
  /// plan with padding and steps that reach as far.
  llvm::ArrayRef<uint8_t> shown(int64_t row, int64_t position) const {
    return llvm::ArrayRef<uint8_t>(visible[static_cast<size_t>(row)])
        .take_front(static_cast<size_t>(position) + 1);
  }

private:
  bool isHidden(size_t row, int64_t position) const;

  const EquivalencePlan& plan;
  std::mt19937_64 random;
  std::vector<std::vector<uint8_t>> visible;
};

/// The original's twin whose numbers are all f32 (`widen`), and what the original rounds to.
struct ExactSession {
  Session& session;
  double unitRoundoff = 0;
};

/// Runs both fresh sessions through the plan with the same random tokens: every common output and
/// the valid region of every cache (paired by layer and role) at every step. Fails where a session
/// does, and when the two have no output or no equal set of caches in common. Positions that are
/// hidden are compared like all others: the two models compute the same thing there too. Only where
/// a manifest says otherwise (hidden_rows), those of tokens that see none are left out.
///
/// Models without caches remember nothing: each length of the plan is run once, and not again where
/// all inputs have the extents of an earlier run.
///
/// A step after the first that both refuse is left out and counted, for lengths have limits that
/// only show when they are reached; refusals of another kind, or by another operator, are a
/// difference.
///
/// With `exact` the tolerance of each tensor at each step is what the original's own rounding
/// explains. Let x be the twin's tensor and e = max |a - x|, measured. A model that rounds the same
/// numbers in another order is as far from x, so that
///
///   |b - a| <= |b - x| + |x - a| <= 2 e + u max |x|,   u the unit roundoff,
///
/// where the last term lets a result that is exact in `a` be rounded once in `b`. The plan's
/// tolerance stays an upper bound.
llvm::Expected<ComparisonReport> compareSessions(Session& a, Session& b,
                                                 const EquivalencePlan& plan,
                                                 std::optional<ExactSession> exact = {});

/// The number of rows of the embedding table or, where that is not found, of the scores: how many
/// token ids there are; 1 for a model without token ids, by name or by `described`. An error when
/// neither is fixed.
llvm::Expected<int64_t> vocabularyOf(const Graph& graph,
                                     llvm::ArrayRef<ManifestInput> described = {});

} // namespace kvopt
