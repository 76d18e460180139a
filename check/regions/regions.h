// Regions: comparison of two values by evaluating what differs between the models.
#pragma once

#include "check/regions/aligned_models.h"
#include "check/regions/comparison.h"
#include "check/regions/latent_caches.h"
#include "check/regions/region_walk.h"

namespace kvopt::check {

/// Compares values of two models. Values that are proved equal become values of one class, and are
/// arbitrary numbers in later comparisons. Regions that are equal except for names are evaluated
/// once (docs/decisions/0056-exact-checking.md).
class Regions {
public:
  Regions(Feeding& inputs, const RuleTable& table, std::vector<Step> scope, unsigned seed,
          int64_t mostWork);

  /// What is compared: the values themselves or, with `pair`, the rows of caches.
  struct Question {
    const ir::Value* before = nullptr;
    const ir::Value* after = nullptr;
    const Feeding::Pair* pair = nullptr;
    /// Whether only equality is of use: the step of the last difference is evaluated first, and one
    /// step that is not equal there ends the comparison.
    bool isHasty = false;
  };
  /// What the last comparison shows, besides its evidence. Pairs are of the first and the second
  /// model.
  struct Outcome {
    Answer answer = Answer::Undecided;
    /// Why it does not cover everything in the scope or beyond it; empty if it does.
    std::string gap;
    /// Whether it needed too much work. Frontiers with fewer stops need more.
    bool isExhausted = false;
    /// Whether elements are infinite or hidden in some orders of real numbers only. No region can
    /// stop at such a value.
    bool hasOrderedPatterns = false;
    /// Patterns of the values that were compared, in each step.
    const Form* patterns = nullptr;
    /// Values at which each model stopped.
    std::array<std::set<ValueClass>, 2> stops;
    /// Nodes that were evaluated.
    std::array<std::vector<const ir::Node*>, 2> nodes;
  };
  /// Compares in all steps. Writes what was compared, and the first difference, to `obligation`.
  Answer compare(const Question& question, Frontier frontier, Obligation& obligation);
  /// The same, but both models stop at the same values. A value at which only one model stops would
  /// be an arbitrary number there, and a computed one in the other model. `first` is the answer of
  /// the last comparison, which must be of the same question at the same frontier. The region grows
  /// in each of at most `rounds` rounds.
  Answer compareMatched(const Question& question, Frontier frontier, Answer first, unsigned rounds,
                        Obligation& obligation);
  /// Declares that `after` has the class of `before`, as the last comparison has shown.
  void merge(const ir::Value& before, const ir::Value& after);

  Classes& classes(bool isAfter) { return models.classes(isAfter); }
  /// The values that both models have.
  Stops& shared() { return models.stops; }
  const std::set<std::string>& assumptions() const { return models.math.assumptions; }
  const Field& field() const { return models.math.field; }
  /// Number of regions that were evaluated, each at one frontier.
  size_t evaluatedCount() const { return evaluations; }
  const Outcome& last() const { return outcome; }
  /// The first step that the first model does not accept, and why; empty if there is none.
  const std::string& rejectedStep() const { return rejected; }

private:
  /// The answer to a question, for all questions with equal regions.
  struct Known {
    Evidence evidence;
    Outcome outcome; ///< without stops and nodes
    /// Places in Region::stops of the values at which each model stopped.
    std::array<std::vector<size_t>, 2> stops;
  };
  Ref given(size_t step, bool isAfter, const ir::Value& value, Frontier frontier);
  /// Rows of pair.before for rows of its latent cache (LatentCaches).
  Ref latentRows(size_t step, const CachePair& pair, const Ref& latent, Frontier frontier);
  /// Contents of an input; null, with the reason in `failure`. Rows of a replaced cache that cannot
  /// be computed are arbitrary, and noted in `unknownRows`.
  Ref inputOf(size_t step, bool isAfter, const ir::Value& input, Frontier frontier,
              std::string& failure);
  Answer compareCaches(size_t step, const Question& question, Frontier frontier, const Ref& before,
                       const Ref& after, bool allowsHidden, Evidence& evidence);
  /// Whether all elements that differ are computed from rows that no token wrote: the values of the
  /// first model, which are evaluated again, then have other numbers. A sequence does not reach
  /// such a step.
  bool differsByUnwrittenRows(size_t step, const Question& question, Frontier frontier,
                              const Ref& before, const Ref& after,
                              llvm::function_ref<Ref()> beforeAgain);
  Answer compareAt(const Question& question, Frontier frontier, Obligation& obligation);
  /// Adds why the forms of the values at which both models stopped may change beyond the scope.
  void addGapOfStops(Frontier frontier);
  /// Notes what the contents of the inputs that the last region reads have in common in all steps.
  void assumeInputs(const Question& question);
  void begin();
  Answer evaluate(const Question& question, Frontier frontier, Evidence& evidence);
  void evaluateBySizes(const Question& question, Frontier frontier, Evidence& evidence);
  /// What the step of the last difference shows; nullopt if it shows neither a difference nor that
  /// equality cannot be decided.
  std::optional<Answer> evaluateHastily(const Question& question, Frontier frontier,
                                        Evidence& evidence);
  /// Failed: the values cannot be evaluated. LeftOut: they need not be compared in the step.
  enum class StepAnswer { Equal, Different, Undecided, Failed, LeftOut };
  StepAnswer evaluateOrders(size_t at, const Question& question, Frontier frontier,
                            Evidence& evidence, Ref& pattern);
  StepAnswer evaluateStep(size_t at, const Question& question, Frontier frontier,
                          Evidence& evidence, Ref& pattern);
  Known recorded(const Region& region, const Obligation& obligation) const;
  void repeat(const Known& known, const Region& region, Obligation& obligation);
  void doubt(const std::string& why) {
    if (outcome.gap.empty())
      outcome.gap = why;
  }
  /// Notes that the first model fails in a step. Small steps should be accepted.
  void reject(const Step& step, const std::string& why);

  AlignedModels models;
  LatentCaches latents;
  /// Inputs that a latent cache replaces and whose rows are not computed in the step.
  llvm::DenseSet<const ir::Value*> unknownRows;
  Outcome outcome;
  std::string rejected;
  /// Number of the step that showed the last difference; others show there, too, more often than in
  /// other steps.
  size_t lastDifferent = 0;
  std::unordered_map<Key, Known, KeyHash> answers;
  size_t evaluations = 0;
};

} // namespace kvopt::check
