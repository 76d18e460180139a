// Evaluation at small sizes: with all operands as numbers, and with data that is unknown.
#include "passes/analysis/evaluation/evaluation.h"

#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "tests/differential/tables.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::differential {
using namespace ir;

namespace {

analysis::NumberTensor numberTensor(const Numbers& numbers) {
  analysis::NumberTensor tensor;
  tensor.extents.assign(numbers.extents.begin(), numbers.extents.end());
  for (Number number : numbers.elements)
    tensor.numbers.push_back(static_cast<double>(number));
  return tensor;
}

/// An instance at its point. Operands for which `isKnown` is true are numbers.
struct AtPoint {
  InstanceModel made;
  std::unique_ptr<analysis::Evaluation> evaluation;
  std::string failure;

  AtPoint(const Instance& instance, llvm::function_ref<bool(unsigned)> isKnown, Dice& dice) {
    Symbols symbols(dice);
    analysis::EvaluationPoint point;
    made = modelOf(instance, [&](Graph& graph, unsigned operand) -> Value& {
      if (isKnown(operand) && dice.oneIn(2))
        return constantOf(graph, instance, operand);
      Value& input = symbols.inputOf(graph, instance, operand);
      if (isKnown(operand))
        point.inputs[&input] = numberTensor(instance.operands[operand].numbers);
      return input;
    });
    for (const auto& [symbol, value] : symbols.all())
      point.extents[symbol] = value;
    if (llvm::Error error = inferShapes(made.model->graph()))
      failure = takeDiagnostic(std::move(error)).str();
    evaluation = std::make_unique<analysis::Evaluation>(made.model->graph(), std::move(point));
  }
};

/// The number that a form is for the operands; nullopt if it has elements of other values.
std::optional<Number> numberOf(const analysis::LinearForm& form, const Instance& instance,
                               const InstanceModel& made) {
  Number sum = form.constant;
  for (const analysis::ElementTerm& term : form.terms) {
    const auto found = llvm::find(made.values, term.block);
    if (found == made.values.end())
      return std::nullopt;
    const auto operand = static_cast<size_t>(found - made.values.begin());
    sum += static_cast<Number>(term.weight) *
           instance.operands[operand].numbers.elements[static_cast<size_t>(term.element)];
  }
  return sum;
}

/// Whether a form is the number that it is for the operands. Integers that wrap, or that are not
/// exact as double, are not followed.
bool isFollowed(ElementType type, const analysis::LinearForm& form, Number number) {
  constexpr Number most = 0x1p53;
  const Number whole = std::trunc(number);
  return !isInteger(type) || form.asElement() ||
         (std::abs(static_cast<Number>(form.constant)) <= most && std::abs(whole) <= most &&
          stored(type, whole) == whole);
}

/// Whether all numbers are finite, which evaluation assumes of unknown elements.
bool isFinite(const Numbers& numbers) {
  return llvm::all_of(numbers.elements, [](Number number) { return std::isfinite(number); });
}

/// A number as evaluation holds it.
Number asDouble(Number number) { return static_cast<Number>(static_cast<double>(number)); }

Numbers heldAsDouble(Numbers numbers) {
  for (Number& number : numbers.elements)
    number = asDouble(number);
  return numbers;
}

} // namespace

std::vector<Numbers> evaluatedResults(const Instance& instance) {
  Dice dice(0);
  const AtPoint at(
      instance, [](unsigned) { return true; }, dice);
  std::vector<Numbers> results;
  for (const Value& result : at.made.node->results()) {
    const analysis::NumberTensor* found =
        at.failure.empty() ? at.evaluation->numbers(result) : nullptr;
    if (!found)
      return {};
    results.push_back({result.type().elementType(),
                       Extents(found->extents.begin(), found->extents.end()),
                       std::vector<Number>(found->numbers.begin(), found->numbers.end())});
  }
  return results;
}

Verdict compareNumbers(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice) {
  const AtPoint at(
      instance, [](unsigned) { return true; }, dice);
  if (!at.failure.empty())
    return Verdict::notThere(at.failure);
  for (unsigned i = 0; i < expected.size(); ++i) {
    const Value& result = at.made.node->result(i);
    if (const analysis::Extents* extents = at.evaluation->extents(result))
      if (std::string difference = differenceOf(i, expected[i], *extents); !difference.empty())
        return Verdict::of("extents: " + difference);
    const analysis::NumberTensor* found = at.evaluation->numbers(result);
    if (!found)
      return Verdict::notThere("it computes no numbers");
    if (std::string difference = differenceOf(i, expected[i], found->extents); !difference.empty())
      return Verdict::of(std::move(difference));
    const Numbers wanted = heldAsDouble(expected[i]);
    for (size_t e = 0; e < wanted.elements.size(); ++e)
      if (std::string difference = differenceOf(instance, i, wanted, e, found->numbers[e]);
          !difference.empty())
        return Verdict::of(std::move(difference));
  }
  return Verdict::of("");
}

Verdict compareForms(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice) {
  std::vector<bool> isKnown;
  for (const Operand& operand : instance.operands)
    isKnown.push_back(operand.isSelector || dice.oneIn(4) || !isFinite(operand.numbers));
  const AtPoint at(
      instance, [&](unsigned operand) { return isKnown[operand]; }, dice);
  if (!at.failure.empty())
    return Verdict::notThere(at.failure);
  size_t compared = 0;
  for (unsigned i = 0; i < expected.size(); ++i) {
    const Value& result = at.made.node->result(i);
    const analysis::Extents* extents = at.evaluation->extents(result);
    if (!extents)
      return Verdict::notThere("it computes no extents");
    if (std::string difference = differenceOf(i, expected[i], *extents); !difference.empty())
      return Verdict::of("extents: " + difference);
    std::vector<analysis::LinearForm> forms;
    if (!at.evaluation->traceAll(result, forms))
      return Verdict::notThere("it is too much work");
    const Numbers wanted = heldAsDouble(expected[i]);
    for (size_t e = 0; e < forms.size(); ++e)
      if (const std::optional<Number> found = numberOf(forms[e], instance, at.made);
          found && isFollowed(wanted.type, forms[e], *found)) {
        ++compared;
        if (std::string difference = differenceOf(instance, i, wanted, e, asDouble(*found));
            !difference.empty())
          return Verdict::of(std::move(difference));
      }
  }
  return compared == 0 ? Verdict::notThere("no element is followed") : Verdict::of("");
}

} // namespace kvopt::differential
