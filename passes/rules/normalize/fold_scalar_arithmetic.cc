// Folds floating-point arithmetic on a few known numbers.
//
//   before   s = Sqrt(Cast<float>(n))     (n is a constant, or an integer tensor whose elements
//                                          shape inference knows, as Slice(Shape(q)) of a fixed
//                                          width)
//   after    s = a constant
//
// Computed in the element type of the result, operator by operator, as in a runtime. Reshapes of
// the numbers are folded as well.
#include "ir/attribute.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/pattern/rule.h"
#include "support/half.h"

#include <array>
#include <bit>
#include <cmath>

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr int64_t mostElements = 16;

struct Numbers {
  llvm::SmallVector<double, 4> elements;
  llvm::SmallVector<int64_t, 4> shape;
};

std::optional<Numbers> knownNumbers(const Value& value) {
  Numbers numbers;
  if (const TensorData* tensor = value.constant()) {
    if (tensor->elementCount() == 0 || tensor->elementCount() > mostElements)
      return std::nullopt;
    if (auto reals = floatValues(*tensor, mostElements)) {
      numbers.shape.assign(tensor->shape().begin(), tensor->shape().end());
      numbers.elements.assign(reals->begin(), reals->end());
      return numbers;
    }
  }
  auto integers = value.knownIntegers();
  const TensorType& type = value.type();
  if (!integers || integers->empty() || integers->size() > mostElements || !type.hasRank() ||
      type.rank() > 1)
    return std::nullopt;
  constexpr int64_t mostExact = int64_t{1} << 53;
  for (const Dim& element : *integers) {
    std::optional<int64_t> number = element.value();
    if (!number || *number > mostExact || *number < -mostExact)
      return std::nullopt;
    numbers.elements.push_back(static_cast<double>(*number));
  }
  if (type.rank() == 1)
    numbers.shape.push_back(static_cast<int64_t>(integers->size()));
  return numbers;
}

/// Applies one operator to numbers of the type `Real`.
template <class Real> Real compute(const Node& node, Real a, Real b) {
  if (node.is("Sqrt"))
    return std::sqrt(a);
  if (node.is("Reciprocal"))
    return Real(1) / a;
  if (node.is("Neg"))
    return -a;
  if (node.is("Add"))
    return a + b;
  if (node.is("Sub"))
    return a - b;
  if (node.is("Mul"))
    return a * b;
  if (node.is("Div"))
    return a / b;
  if (node.is("Pow"))
    return std::pow(a, b);
  return a; // Cast, CastLike
}

/// nullopt unless the shapes are equal or one of them is that of a single number.
std::optional<Numbers> folded(const Node& node, const Numbers& a, const Numbers& b,
                              ElementType type) {
  bool isPair = node.operands().size() == 2 && !node.is("CastLike");
  bool sameShape = a.shape == b.shape;
  if (isPair && !sameShape && a.elements.size() != 1 && b.elements.size() != 1)
    return std::nullopt;
  Numbers result;
  const Numbers& larger = isPair && b.elements.size() > a.elements.size() ? b : a;
  result.shape = larger.shape;
  size_t rank = isPair ? std::max(a.shape.size(), b.shape.size()) : a.shape.size();
  while (result.shape.size() < rank)
    result.shape.insert(result.shape.begin(), 1);
  for (size_t i = 0; i < larger.elements.size(); ++i) {
    double left = a.elements[a.elements.size() == 1 ? 0 : i];
    double right = isPair ? b.elements[b.elements.size() == 1 ? 0 : i] : 0.0;
    double number = type == ElementType::Double
                        ? compute<double>(node, left, right)
                        : static_cast<double>(compute<float>(node, static_cast<float>(left),
                                                             static_cast<float>(right)));
    std::optional<double> rounded = roundedTo(type, number);
    if (!rounded || std::isnan(*rounded))
      return std::nullopt;
    result.elements.push_back(*rounded);
  }
  return result;
}

template <class Number> void append(std::vector<std::byte>& bytes, Number number) {
  auto raw = std::bit_cast<std::array<std::byte, sizeof(Number)>>(number);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

TensorRef tensorOf(const Numbers& numbers, ElementType type) {
  std::vector<std::byte> bytes;
  for (double number : numbers.elements) {
    auto single = static_cast<float>(number);
    if (type == ElementType::Double)
      append(bytes, number);
    else if (type == ElementType::Float16)
      append(bytes, floatToF16(single));
    else if (type == ElementType::BFloat16)
      append(bytes, floatToBf16(single));
    else
      append(bytes, single);
  }
  return llvm::cantFail(makeTensor(type, numbers.shape, std::move(bytes)));
}

class FoldScalarArithmetic final : public Rule {
  Var a{"a"}, b{"b"};
  Payload<Numbers> numbers;

public:
  llvm::StringRef name() const override { return "fold-scalar-arithmetic"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    std::vector<Alternative> alternatives;
    for (const char* name : {"Cast", "Sqrt", "Reciprocal", "Neg"})
      alternatives.push_back({name, op(name, {a})});
    for (const char* name : {"Add", "Sub", "Mul", "Div", "Pow"})
      alternatives.push_back({name, op(name, {a, b})});
    // Only the type or the shape of the second operand matters, which the result has.
    for (const char* name : {"CastLike", "Reshape", "Unsqueeze", "Squeeze"})
      alternatives.push_back({name, op(name, {a, any()})});
    return oneOf("operator", std::move(alternatives));
  }

  void constraints(Constraints& c) const override {
    c.plan(numbers, "operands of at most 16 known numbers",
           [this](const Match& match) { return result(match); });
    c.require("a result inside of the graph",
              [](const Match& match) { return !match.root().result().isGraphOutput(); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    ElementType type = match.root().result().type().elementType();
    Value& after = rewriter.constant("folded", tensorOf(match[numbers], type));
    return rewriter.replace(match.root().result(), after);
  }

private:
  std::optional<Numbers> result(const Match& match) const {
    const Node& node = match.root();
    ElementType type = node.result().type().elementType();
    if (!isFloatingPoint(type) || !roundedTo(type, 0.0))
      return std::nullopt;
    std::optional<Numbers> left = knownNumbers(match[a]);
    if (!left)
      return std::nullopt;
    if (node.is("Reshape") || node.is("Unsqueeze") || node.is("Squeeze")) {
      auto shape = node.result().type().fixedShape();
      size_t count = 1;
      for (int64_t extent : shape.value_or(llvm::SmallVector<int64_t, 4>()))
        count *= static_cast<size_t>(extent);
      if (!shape || count != left->elements.size() || match[a].type().elementType() != type)
        return std::nullopt;
      left->shape = *shape;
      return left;
    }
    const Value* second = match.find(b);
    std::optional<Numbers> right = second ? knownNumbers(*second) : Numbers();
    if (!right)
      return std::nullopt;
    return folded(node, *left, *right, type);
  }
};

} // namespace

void register_fold_scalar_arithmetic(RuleRegistry& registry) {
  registry.add(std::make_unique<FoldScalarArithmetic>());
}

} // namespace kvopt::rules
