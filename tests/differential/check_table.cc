// Rules of the checker: with known numbers, with elements of its fields, and with shapes alone.
#include "check/evaluation/evaluation.h"
#include "support/format.h"
#include "tests/differential/tables.h"

#include "llvm/ADT/STLExtras.h"

#include <array>
#include <cmath>

namespace kvopt::differential {
using namespace ir;

namespace {

/// Whether the checker has no integer for the number.
bool isOpen(Number number) { return number >= 0x1p63L; }

/// The arithmetic of one instance. Its fields take long to make, so that instances share them.
check::Arithmetic& arithmeticFor(const Instance& instance, unsigned seed) {
  constexpr unsigned seeds = 4;
  static std::array<std::unique_ptr<check::Arithmetic>, seeds> made;
  std::unique_ptr<check::Arithmetic>& math = made[seed % seeds];
  if (!math)
    math = std::make_unique<check::Arithmetic>(seed % seeds);
  math->work = math->earlierWork = 0;
  math->thresholds.clear();
  math->constants.forgetUses();
  math->usesOrder = false;
  math->openInteger.clear();
  for (const Operand& operand : instance.operands)
    if (isInteger(operand.numbers.type) && llvm::any_of(operand.numbers.elements, isOpen))
      math->openInteger = "an operand";
  return *math;
}

check::Ref tensorOf(const Numbers& numbers, check::Kind kind, check::Arithmetic& math) {
  auto tensor = std::make_shared<check::Tensor>();
  tensor->kind = kind;
  tensor->type = numbers.type;
  tensor->shape.assign(numbers.extents.begin(), numbers.extents.end());
  for (Number number : numbers.elements) {
    if (kind == check::Kind::Integer)
      tensor->integers.push_back(isOpen(number) ? check::openInteger
                                                : static_cast<int64_t>(number));
    else if (kind == check::Kind::Known)
      tensor->known.push_back(static_cast<double>(number));
    else
      tensor->reals.push_back(math.constants.constant(static_cast<double>(number), false));
  }
  return tensor;
}

/// Whether the fields have no elements for the results: the operator is an unknown function, or a
/// narrow type rounds a number so far that it is not recognized.
bool isUnknownFunction(const Instance& instance, ElementType type) {
  const bool isWide = type == ElementType::Float || type == ElementType::Double;
  return instance.isOpaque || (!isWide && instance.accuracy == Accuracy::Rounded) ||
         !isFloatingPoint(type);
}

/// Whether the element is a fraction that rounds to the number.
bool isFraction(const check::Exact& element, double number, const check::Arithmetic& math) {
  constexpr int64_t largest = 512;
  for (int64_t divisor = 1; divisor <= largest; ++divisor) {
    const double dividend = std::round(number * static_cast<double>(divisor));
    const double error = std::abs(dividend / static_cast<double>(divisor) - number);
    if (error <= 0x1p-22 * std::max(1.0, std::abs(number)) &&
        math.field.multiply(element, math.field.integer(divisor))
            .isEqual(math.field.integer(static_cast<int64_t>(dividend))))
      return true;
  }
  return false;
}

/// How an element of the fields differs from a number; `isKnown` is false if it may be any number.
std::string fieldDifference(const Instance& instance, ElementType type, Number expected,
                            const check::Exact& found, check::Arithmetic& math, bool& isKnown) {
  using check::Status;
  isKnown = found.status != Status::Undecided && found.status != Status::Unspecified;
  if (!isKnown)
    return "";
  const auto number = static_cast<double>(expected);
  if (!std::isfinite(number) || !found.hasResidue()) {
    const Status wanted = std::isnan(number) ? Status::NotANumber
                          : std::isinf(number)
                              ? (number < 0 ? Status::MinusInfinity : Status::PlusInfinity)
                              : Status::Number;
    return found.status == wanted ? "" : formatted("is of status {}", int(found.status));
  }
  if (isUnknownFunction(instance, type)) {
    isKnown = false;
    return "";
  }
  const bool isSame = found.isEqual(math.constants.constant(number, false)) ||
                      (instance.accuracy == Accuracy::Rounded && isFraction(found, number, math));
  return isSame ? "" : "is another number";
}

/// Unknown functions: elements that the fields call equal are equal numbers.
std::string patternDifference(const Instance& instance, const Numbers& expected,
                              const check::Tensor& found) {
  for (size_t i = 0; i < found.reals.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (found.reals[i].hasResidue() && found.reals[i].isEqual(found.reals[j]) &&
          !isSame(instance, expected.type, expected.elements[i], expected.elements[j]))
        return formatted("elements {} and {}, {} and {}, are equal", j, i,
                         static_cast<double>(expected.elements[j]),
                         static_cast<double>(expected.elements[i]));
  return "";
}

/// How the elements of a result differ; `compared` counts those that are known.
std::string elementDifference(const Instance& instance, unsigned result, const Numbers& expected,
                              const check::Tensor& found, check::Arithmetic& math,
                              size_t& compared) {
  for (size_t i = 0; i < expected.elements.size(); ++i) {
    if (!found.isReal()) {
      const Number number = found.isInteger() ? static_cast<Number>(found.integers[i])
                                              : static_cast<Number>(found.known[i]);
      if (found.isInteger() && found.integers[i] == check::openInteger)
        continue;
      ++compared;
      if (std::string difference = differenceOf(instance, result, expected, i, number);
          !difference.empty())
        return difference;
      continue;
    }
    bool isKnown = false;
    if (std::string difference = fieldDifference(instance, expected.type, expected.elements[i],
                                                 found.reals[i], math, isKnown);
        !difference.empty())
      return formatted("element {} of result {}, which is {}, {}", i, result,
                       static_cast<double>(expected.elements[i]), difference);
    compared += isKnown ? 1 : 0;
  }
  if (found.isReal() && isUnknownFunction(instance, expected.type))
    return patternDifference(instance, expected, found);
  return "";
}

/// Whether the checker says that results depend on integers that it does not represent.
bool dependsOnOpen(const check::Arithmetic& math) {
  return !math.openInteger.empty() && math.thresholds.gap() == math.openInteger;
}

/// The results for operands that `operandOf` makes, or why there are none.
struct Evaluated {
  std::vector<check::Ref> results;
  std::string failure;

  Evaluated(const Instance& instance, check::Arithmetic& math,
            llvm::function_ref<check::Ref(unsigned)> operandOf) {
    static const check::RuleTable rules = check::allRules();
    const InstanceModel made = modelOf(instance);
    check::Evaluation::Hooks hooks;
    hooks.input = [&](const Value& value) -> check::Ref {
      const auto found = llvm::find(made.values, &value);
      return found == made.values.end()
                 ? nullptr
                 : operandOf(static_cast<unsigned>(found - made.values.begin()));
    };
    check::Evaluation evaluation(*made.model, rules, math, std::move(hooks));
    for (const Value& result : made.node->results())
      results.push_back(evaluation.evaluate(result));
    failure = evaluation.failure();
  }
};

Verdict compared(const Instance& instance, llvm::ArrayRef<Numbers> expected,
                 check::Arithmetic& math, llvm::function_ref<check::Ref(unsigned)> operandOf) {
  const Evaluated evaluated(instance, math, operandOf);
  size_t count = 0;
  for (unsigned i = 0; i < expected.size(); ++i) {
    const check::Ref& found = evaluated.results[i];
    if (!found)
      return Verdict::notThere(evaluated.failure);
    if (std::string difference = differenceOf(i, expected[i], found->shape); !difference.empty())
      return Verdict::of(std::move(difference));
    count += expected[i].elements.empty() || found->isHollow || instance.isOpaque ? 1 : 0;
    if (found->isHollow || math.usesOrder || dependsOnOpen(math))
      continue;
    if (std::string difference = elementDifference(instance, i, expected[i], *found, math, count);
        !difference.empty())
      return Verdict::of(std::move(difference));
  }
  return count == 0 ? Verdict::notThere("no element is known") : Verdict::of("");
}

check::Kind kindOf(const Numbers& numbers, check::Kind ofFloats) {
  return isFloatingPoint(numbers.type) ? ofFloats : check::Kind::Integer;
}

} // namespace

std::vector<Numbers> checkedResults(const Instance& instance) {
  check::Arithmetic& math = arithmeticFor(instance, 0);
  if (!math.openInteger.empty())
    return {};
  const Evaluated evaluated(instance, math, [&](unsigned operand) {
    const Numbers& numbers = instance.operands[operand].numbers;
    return tensorOf(numbers, kindOf(numbers, check::Kind::Known), math);
  });
  std::vector<Numbers> results;
  for (const check::Ref& found : evaluated.results) {
    if (!found || found->isReal())
      return {};
    results.push_back({found->type, Extents(found->shape.begin(), found->shape.end()), {}});
    if (found->isInteger())
      results.back().elements.assign(found->integers.begin(), found->integers.end());
    else
      results.back().elements.assign(found->known.begin(), found->known.end());
  }
  return results;
}

Verdict compareCheck(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice&) {
  check::Arithmetic& math = arithmeticFor(instance, 0);
  return compared(instance, expected, math, [&](unsigned operand) {
    const Numbers& numbers = instance.operands[operand].numbers;
    return tensorOf(numbers, kindOf(numbers, check::Kind::Known), math);
  });
}

Verdict compareFields(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice) {
  bool hasReals = false;
  std::vector<check::Kind> kinds;
  for (const Operand& operand : instance.operands) {
    const bool isReal = !operand.isSelector && !dice.oneIn(4);
    kinds.push_back(kindOf(operand.numbers, isReal ? check::Kind::Real : check::Kind::Known));
    hasReals |= operand.isPresent && kinds.back() == check::Kind::Real;
  }
  if (!hasReals)
    return Verdict::notThere("no operand has elements of the fields");
  check::Arithmetic& math = arithmeticFor(instance, static_cast<unsigned>(dice.bits()));
  return compared(instance, expected, math, [&](unsigned operand) {
    return tensorOf(instance.operands[operand].numbers, kinds[operand], math);
  });
}

Verdict compareHollow(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice&) {
  check::Arithmetic& math = arithmeticFor(instance, 0);
  bool isHollow = false;
  for (const Operand& operand : instance.operands)
    isHollow |= operand.isPresent && !operand.isSelector && isFloatingPoint(operand.numbers.type);
  if (!isHollow)
    return Verdict::notThere("no operand can be hollow");
  return compared(instance, expected, math, [&](unsigned operand) -> check::Ref {
    const Operand& given = instance.operands[operand];
    if (given.isSelector || !isFloatingPoint(given.numbers.type))
      return tensorOf(given.numbers, kindOf(given.numbers, check::Kind::Known), math);
    return check::hollowTensor(
        check::Extents(given.numbers.extents.begin(), given.numbers.extents.end()), false,
        given.numbers.type);
  });
}

} // namespace kvopt::differential
