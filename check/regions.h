// Regions: comparison of two values by evaluating what differs between the models.
#pragma once

#include "check/classes.h"
#include "check/evaluation.h"
#include "check/report.h"

#include "llvm/ADT/DenseSet.h"

#include <set>
#include <unordered_map>
#include <unordered_set>

namespace kvopt::check {

/// Where the evaluation of a region stops: at values that both models have.
enum class Frontier {
  Shared,      ///< at all of them, weights included
  Activations, ///< at those that depend on inputs; constants are what they are
  Computed,    ///< the same without results that only arrange the elements of another value
  Compared,    ///< at those of Computed that were proved equal by evaluation
  Inputs,      ///< at graph inputs only
};

/// Compares values of two models. Values that are proved equal become values of one class, and are
/// arbitrary numbers in later comparisons.
class Regions {
public:
  Regions(Feeding& inputs, const RuleTable& table, std::vector<Step> scope, unsigned seed);

  /// What is compared: the values themselves or, with `pair`, the rows of caches.
  struct Question {
    const ir::Value* before = nullptr;
    const ir::Value* after = nullptr;
    const Feeding::Pair* pair = nullptr;
  };
  enum class Answer { Equal, Different, Undecided };
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

  Classes& beforeClasses() { return classesBefore; }
  Classes& afterClasses() { return classesAfter; }
  /// Whether a value of the first model has the class.
  bool isOfBefore(const ValueClass& value) const { return representatives.count(value) != 0; }
  /// Notes that a value of the second model has a class.
  void noteAfter(const ValueClass& value) { ofAfter.insert(value); }
  const std::set<std::string>& assumptions() const { return math.assumptions; }
  const Field& field() const { return math.field; }
  /// Why the last comparison does not cover everything in the scope or beyond it; empty if it does.
  std::string lastGap() const;
  /// The first step that the first model does not accept, and why; empty if there is none.
  const std::string& rejectedStep() const { return rejected; }
  /// Nodes that the last comparison evaluated.
  const std::vector<const ir::Node*>& lastBefore() const { return nodesBefore; }
  const std::vector<const ir::Node*>& lastAfter() const { return nodesAfter; }

private:
  struct StepState {
    std::unique_ptr<Evaluation> hollow;
    std::unordered_map<ValueClass, Ref> leaves;
  };
  Ref given(size_t step, bool isAfter, const ir::Value& value, Frontier frontier);
  Answer compareAt(const Question& question, Frontier frontier, Obligation& obligation);
  Ref leaf(size_t step, const ValueClass& value, const ir::Value& representative);
  Ref fresh(size_t step, const ValueClass& value, const Ref& pattern);
  Ref hollowOf(size_t step, const ir::Value& value);
  /// Whether the first model computes all of its outputs in a step, as far as shapes show.
  bool acceptsStep(size_t step);
  /// The declared shape of a value of the first model; null if it is not known.
  Ref declared(size_t step, const ir::Value& value);
  Evaluation& hollowEvaluation(size_t step);
  Answer compareElements(const Question& question, const Step& step, Ref before, Ref after,
                         Obligation& obligation, Ref& pattern);
  Answer compareRows(const Question& question, const Step& step, const Ref& before,
                     const Ref& after, Obligation& obligation);
  void indexInputs();
  /// Finds the values of the first model whose shapes or kinds are assumed.
  void collectDoubts(const ir::Graph& graph);
  void doubt(const std::string& why) {
    if (gap.empty())
      gap = why;
  }
  /// Notes that the first model fails in a step. Small steps should be accepted.
  void reject(const Step& step, const std::string& why);

  Feeding& feeding;
  const RuleTable& rules;
  std::vector<Step> steps;
  Arithmetic math;
  ConstantDigests digests;
  Classes classesBefore;
  Classes classesAfter;
  std::unordered_map<ValueClass, const ir::Value*> representatives;
  std::unordered_set<ValueClass> ofAfter;
  /// For classes that were proved equal by evaluation, the elements in each step; null for those
  /// that are all numbers.
  std::unordered_map<ValueClass, std::vector<Ref>> compared;
  llvm::DenseSet<const ir::Value*> dependsOnInput;
  llvm::DenseMap<const ir::Value*, std::string> doubts;
  std::string firstDoubt, gap, rejected;
  std::vector<StepState> states;
  /// Values at which each model stopped in the last comparison, and those at which none may.
  std::set<ValueClass> stopsBefore, stopsAfter, notStops;
  std::vector<Ref> lastPatterns;
  std::vector<const ir::Node*> nodesBefore, nodesAfter;
  unsigned depth = 0;
};

} // namespace kvopt::check
