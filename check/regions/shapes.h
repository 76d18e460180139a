// Shapes: the values of the first model in each step, without their numbers.
#pragma once

#include "check/alignment/classes.h"
#include "check/caches/feeding.h"
#include "check/evaluation/evaluation.h"
#include "check/regions/form_gaps.h"

namespace kvopt::check {

/// Evaluates the first model without numbers: real tensors are hollow, integers and known numbers
/// are what they are. Nodes with equal operators and operands of equal forms are evaluated once.
class Shapes {
public:
  Shapes(Feeding& inputs, const RuleTable& table, Classes& ofBefore, ConstantDigests& ofConstants,
         const std::vector<Step>& scope, Arithmetic& shared, Forms& kept)
      : feeding(inputs), rules(table), classes(ofBefore), digests(ofConstants), steps(scope),
        math(shared), forms(kept), accepted(scope.size()) {}

  /// What is known of a value of the first model. An entry is null if it cannot be evaluated.
  const Form* of(const ir::Value& value);
  /// Why what is known of a value of the first model may change beyond the scope.
  const FormGap& gapOf(const ir::Value& value) {
    of(value);
    return gaps.of(value);
  }
  /// Whether the value is plain (PlainNumbers).
  bool isPlain(const ir::Value& value) { return gaps.isPlain(value); }
  /// The declared shape of a value of the first model; null if it is not known.
  Ref declared(size_t step, const ir::Value& value);
  /// Whether the first model computes all of its outputs in a step, as far as shapes show.
  bool accepts(size_t step);
  /// Where the elements of a cache's input come from (Feeding::cachePlaces).
  const Form* placesOf(const CacheInput& input);

  /// Patterns of a class that was proved equal by evaluation: null in a step in which all elements
  /// are numbers. They apply to values that are evaluated from now on.
  void setCompared(const ValueClass& value, const Form* patterns) { compared[value] = patterns; }
  /// These patterns; null if the class was not compared.
  const Form* comparedAs(const ValueClass& value) const {
    auto found = compared.find(value);
    return found == compared.end() ? nullptr : found->second;
  }

private:
  bool settle(const ir::Value& value);
  Ref ofWeight(const ir::TensorData& data);
  void run(const ir::Node& node);
  /// The results of a node in all steps.
  struct Evaluated {
    std::vector<const Form*> forms;
    std::string gap;    ///< of the node's own comparisons
    std::string unread; ///< of tables from which it selects
  };
  Evaluated evaluate(const ir::Node& node);
  Evaluation evaluationOf(size_t step);
  Key keyOf(const ir::Node& node);
  Ref withPattern(size_t step, const ir::Value& value, Ref contents);

  Feeding& feeding;
  const RuleTable& rules;
  Classes& classes;
  ConstantDigests& digests;
  const std::vector<Step>& steps;
  Arithmetic& math;
  Forms& forms;
  llvm::DenseMap<const ir::Value*, const Form*> known;
  std::unordered_map<Key, Evaluated, KeyHash> results;
  FormGaps gaps;
  std::unordered_map<ValueClass, const Form*> compared;
  llvm::DenseMap<uint64_t, const Form*> places;
  std::vector<std::optional<bool>> accepted;
};

} // namespace kvopt::check
