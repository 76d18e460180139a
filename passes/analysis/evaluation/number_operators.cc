// Arithmetic on numbers.
#include "passes/analysis/evaluation/number_operators.h"

#include "passes/analysis/evaluation/traced_operators.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvopt::analysis {
using namespace ir;

namespace {

using Numbers = std::unique_ptr<NumberTensor>;

struct Operands {
  const Node& node;
  Evaluation& evaluation;

  const NumberTensor* at(unsigned index) const {
    const Value* value = node.operand(index);
    return value ? evaluation.numbers(*value) : nullptr;
  }
  bool has(unsigned index) const { return node.operand(index) != nullptr; }
  ElementType element() const { return node.result().type().elementType(); }
  ElementType elementOf(unsigned index) const { return node.operand(index)->type().elementType(); }
  std::optional<double> single(unsigned index) const {
    const NumberTensor* tensor = at(index);
    return tensor && tensor->isSingle() ? std::optional(tensor->numbers.front()) : std::nullopt;
  }
};

Numbers tensorOf(Extents extents) {
  const auto count = countOf(extents, mostNumbers);
  if (!count)
    return nullptr;
  auto result = std::make_unique<NumberTensor>();
  result->extents = std::move(extents);
  result->numbers.resize(static_cast<size_t>(*count));
  return result;
}

Numbers listOf(std::vector<double> numbers) {
  auto result = std::make_unique<NumberTensor>();
  result->extents = {static_cast<int64_t>(numbers.size())};
  result->numbers = std::move(numbers);
  return result;
}

/// The number as the element type holds it: rounded, or truncated to an integer. Clears `ok` for an
/// integer that is not exact, or that would wrap.
double heldBy(ElementType type, double number, bool& ok) {
  if (type == ElementType::Float)
    return static_cast<double>(static_cast<float>(number));
  if (!isInteger(type))
    return number;
  const double held = std::trunc(number);
  const auto bits = static_cast<int>(bitWidth(type).value_or(0));
  const double end = std::ldexp(1.0, isUnsigned(type) ? bits : bits - 1);
  if (!isExact(held) || held >= end || held < (isUnsigned(type) ? 0 : -end))
    ok = false;
  return held;
}

using UnaryFunction = double (*)(double);
struct UnaryOperator {
  const char* name;
  UnaryFunction apply;
};

double roundHalfToEven(double x) { return std::nearbyint(x); }
double signOf(double x) { return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x; }

constexpr UnaryOperator unaryOperators[] = {
    {"Neg", [](double x) { return -x; }},
    {"Abs", [](double x) { return std::abs(x); }},
    {"Floor", [](double x) { return std::floor(x); }},
    {"Ceil", [](double x) { return std::ceil(x); }},
    {"Round", roundHalfToEven},
    {"Sign", signOf},
    {"Sqrt", [](double x) { return std::sqrt(x); }},
    {"Exp", [](double x) { return std::exp(x); }},
    {"Log", [](double x) { return std::log(x); }},
    {"Sin", [](double x) { return std::sin(x); }},
    {"Cos", [](double x) { return std::cos(x); }},
    {"Tanh", [](double x) { return std::tanh(x); }},
    {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"Relu", [](double x) { return x < 0 ? 0 : x; }},
    {"Reciprocal", [](double x) { return 1 / x; }},
    {"Not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
    {"IsNaN", [](double x) { return std::isnan(x) ? 1.0 : 0.0; }},
};

/// `isIntegral`: for integers, whose division truncates.
using BinaryFunction = double (*)(double, double, bool isIntegral);
struct BinaryOperator {
  const char* name;
  BinaryFunction apply;
  /// Whether only the order of the operands counts, so that one of them may be inexact.
  bool compares = false;
};

// NaN is both larger and smaller than other numbers.
double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }
double smaller(double a, double b) { return b < a || std::isnan(b) ? b : a; }

double divide(double a, double b, bool isIntegral) {
  return isIntegral ? (b == 0 ? std::numeric_limits<double>::quiet_NaN() : std::trunc(a / b))
                    : a / b;
}
double modulo(double a, double b, bool isIntegral) {
  if (!isIntegral)
    return std::fmod(a, b);
  if (b == 0)
    return std::numeric_limits<double>::quiet_NaN();
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

constexpr BinaryOperator binaryOperators[] = {
    {"Add", [](double a, double b, bool) { return a + b; }},
    {"Sub", [](double a, double b, bool) { return a - b; }},
    {"Mul", [](double a, double b, bool) { return a * b; }},
    {"Div", divide},
    {"Mod", modulo},
    {"Pow", [](double a, double b, bool) { return std::pow(a, b); }},
    {"Min", [](double a, double b, bool) { return smaller(a, b); }, true},
    {"Max", [](double a, double b, bool) { return larger(a, b); }, true},
    {"Sum", [](double a, double b, bool) { return a + b; }},
    {"And", [](double a, double b, bool) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
    {"Or", [](double a, double b, bool) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
    {"Xor", [](double a, double b, bool) { return (a != 0) != (b != 0) ? 1.0 : 0.0; }},
    {"Equal", [](double a, double b, bool) { return a == b ? 1.0 : 0.0; }, true},
    {"Less", [](double a, double b, bool) { return a < b ? 1.0 : 0.0; }, true},
    {"LessOrEqual", [](double a, double b, bool) { return a <= b ? 1.0 : 0.0; }, true},
    {"Greater", [](double a, double b, bool) { return a > b ? 1.0 : 0.0; }, true},
    {"GreaterOrEqual", [](double a, double b, bool) { return a >= b ? 1.0 : 0.0; }, true},
};

Numbers unary(const Operands& operands, UnaryFunction apply) {
  const NumberTensor* data = operands.at(0);
  Numbers result = data ? tensorOf(data->extents) : nullptr;
  bool ok = true;
  for (size_t i = 0; result && i < data->numbers.size(); ++i)
    result->numbers[i] = heldBy(operands.element(), apply(data->numbers[i]), ok);
  return ok ? std::move(result) : nullptr;
}

Numbers binary(const Operands& operands, const BinaryOperator& op) {
  const NumberTensor* first = operands.at(0);
  if (!first)
    return nullptr;
  Numbers sum = std::make_unique<NumberTensor>(*first);
  // Mod of integers may have the sign of the dividend on request, like floats.
  const bool areIntegers = isInteger(operands.elementOf(0));
  const bool isIntegral = areIntegers && operands.node.intAttr("fmod", 0) == 0;
  bool ok = true;
  for (unsigned i = 1; i < operands.node.operands().size(); ++i) {
    const NumberTensor* next = operands.at(i);
    const auto extents = next ? broadcastOf(sum->extents, next->extents) : std::nullopt;
    Numbers result = extents ? tensorOf(*extents) : nullptr;
    if (!result)
      return nullptr;
    const BroadcastElements left(*extents, sum->extents), right(*extents, next->extents);
    for (size_t e = 0; e < result->numbers.size(); ++e) {
      const auto element = static_cast<int64_t>(e);
      const double a = sum->numbers[static_cast<size_t>(left(element))];
      const double b = next->numbers[static_cast<size_t>(right(element))];
      if (areIntegers && (op.compares ? !isExact(a) && !isExact(b) : !isExact(a) || !isExact(b)))
        ok = false;
      result->numbers[e] = heldBy(operands.element(), op.apply(a, b, isIntegral), ok);
    }
    sum = std::move(result);
  }
  return ok ? std::move(sum) : nullptr;
}

Numbers cast(const Operands& operands) {
  const NumberTensor* data = operands.at(0);
  Numbers result = data ? tensorOf(data->extents) : nullptr;
  const ElementType to = operands.element();
  bool ok = true;
  for (size_t i = 0; result && i < data->numbers.size(); ++i) {
    const double number = data->numbers[i];
    if (to == ElementType::Bool)
      result->numbers[i] = number != 0 ? 1 : 0;
    else if (to == operands.elementOf(0))
      result->numbers[i] = number; // such as the end of a Slice that is beyond every axis
    else
      result->numbers[i] = heldBy(to, number, ok);
  }
  return ok ? std::move(result) : nullptr;
}

Numbers clip(const Operands& operands) {
  const NumberTensor* data = operands.at(0);
  Numbers result = data ? tensorOf(data->extents) : nullptr;
  const auto low = operands.has(1) ? operands.single(1)
                                   : std::optional<double>(operands.node.floatAttr(
                                         "min", -std::numeric_limits<float>::infinity()));
  const auto high = operands.has(2) ? operands.single(2)
                                    : std::optional<double>(operands.node.floatAttr(
                                          "max", std::numeric_limits<float>::infinity()));
  if (!result || !low || !high)
    return nullptr;
  for (size_t i = 0; i < data->numbers.size(); ++i)
    result->numbers[i] = std::min(std::max(data->numbers[i], *low), *high);
  return result;
}

Numbers isInfinite(const Operands& operands) {
  const NumberTensor* data = operands.at(0);
  Numbers result = data ? tensorOf(data->extents) : nullptr;
  const bool negative = operands.node.intAttr("detect_negative", 1) != 0;
  const bool positive = operands.node.intAttr("detect_positive", 1) != 0;
  for (size_t i = 0; result && i < data->numbers.size(); ++i)
    result->numbers[i] =
        std::isinf(data->numbers[i]) && (data->numbers[i] < 0 ? negative : positive) ? 1 : 0;
  return result;
}

Numbers shape(const Operands& operands) {
  const Extents* extents = operands.evaluation.extents(*operands.node.operand(0));
  if (!extents)
    return nullptr;
  const auto rank = static_cast<int64_t>(extents->size());
  auto bound = [&](const char* name, int64_t otherwise) {
    int64_t axis = operands.node.intAttr(name, otherwise);
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  std::vector<double> numbers;
  for (int64_t axis = bound("start", 0); axis < bound("end", rank); ++axis)
    numbers.push_back(static_cast<double>((*extents)[static_cast<size_t>(axis)]));
  return listOf(std::move(numbers));
}

Numbers size(const Operands& operands) {
  const Extents* extents = operands.evaluation.extents(*operands.node.operand(0));
  const auto count = extents ? countOf(*extents) : std::nullopt;
  Numbers result = count ? tensorOf({}) : nullptr;
  if (result)
    result->numbers[0] = static_cast<double>(*count);
  return result;
}

Numbers constantOfShape(const Operands& operands) {
  const NumberTensor* target = operands.at(0);
  if (!target)
    return nullptr;
  Extents extents;
  for (double number : target->numbers)
    extents.push_back(static_cast<int64_t>(number));
  double fill = 0;
  if (const Attribute* value = operands.node.attribute("value")) {
    const auto number = scalarValue(*value->tensorValue());
    if (!number)
      return nullptr;
    fill = *number;
  }
  Numbers result = tensorOf(std::move(extents));
  if (result)
    std::fill(result->numbers.begin(), result->numbers.end(), fill);
  return result;
}

Numbers range(const Operands& operands) {
  const auto start = operands.single(0), limit = operands.single(1), step = operands.single(2);
  if (!start || !limit || !step || *step == 0)
    return nullptr;
  const double count = std::max(0.0, std::ceil((*limit - *start) / *step));
  if (!(count <= static_cast<double>(mostNumbers)))
    return nullptr;
  std::vector<double> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = *start + static_cast<double>(i) * *step;
  return listOf(std::move(numbers));
}

Numbers cumulativeSum(const Operands& operands) {
  const NumberTensor* data = operands.at(0);
  const auto given = operands.single(1);
  const auto axis =
      data && given ? normalizedAxis(static_cast<int64_t>(*given), unsigned(data->extents.size()))
                    : std::nullopt;
  if (!axis)
    return nullptr;
  Numbers result = tensorOf(data->extents);
  if (!result)
    return nullptr;
  const bool excludes = operands.node.intAttr("exclusive", 0) != 0;
  const bool reversed = operands.node.intAttr("reverse", 0) != 0;
  const int64_t stride = rowMajorStrides(data->extents)[*axis];
  const int64_t extent = data->extents[*axis];
  bool ok = true;
  for (int64_t e = 0; e < static_cast<int64_t>(data->numbers.size()); ++e) {
    if (e / stride % extent != 0)
      continue;
    double sum = 0;
    for (int64_t i = 0; i < extent; ++i) {
      const auto at = static_cast<size_t>(e + (reversed ? extent - 1 - i : i) * stride);
      const double next = heldBy(operands.element(), sum + data->numbers[at], ok);
      result->numbers[at] = excludes ? sum : next;
      sum = next;
    }
  }
  return ok ? std::move(result) : nullptr;
}

Numbers oneHot(const Operands& operands) {
  const NumberTensor* indices = operands.at(0);
  const auto depth = operands.single(1);
  const NumberTensor* values = operands.at(2);
  if (!indices || !depth || !values || values->numbers.size() != 2 || *depth < 0)
    return nullptr;
  const auto axis =
      normalizedAxis(operands.node.intAttr("axis", -1), unsigned(indices->extents.size()) + 1);
  if (!axis)
    return nullptr;
  Extents extents = indices->extents;
  extents.insert(extents.begin() + *axis, static_cast<int64_t>(*depth));
  Numbers result = tensorOf(extents);
  for (size_t e = 0; result && e < result->numbers.size(); ++e) {
    Extents index = indexOf(static_cast<int64_t>(e), extents);
    const auto place = static_cast<double>(index[*axis]);
    index.erase(index.begin() + *axis);
    double wanted = indices->numbers[static_cast<size_t>(elementAt(index, indices->extents))];
    if (wanted < 0)
      wanted += *depth;
    result->numbers[e] = values->numbers[wanted == place ? 1 : 0];
  }
  return result;
}

Numbers nonZero(const Operands& operands) {
  const NumberTensor* data = operands.at(0);
  if (!data)
    return nullptr;
  std::vector<Extents> found;
  for (size_t e = 0; e < data->numbers.size(); ++e)
    if (data->numbers[e] != 0)
      found.push_back(indexOf(static_cast<int64_t>(e), data->extents));
  Numbers result =
      tensorOf({static_cast<int64_t>(data->extents.size()), static_cast<int64_t>(found.size())});
  for (size_t axis = 0; result && axis < data->extents.size(); ++axis)
    for (size_t i = 0; i < found.size(); ++i)
      result->numbers[axis * found.size() + i] = static_cast<double>(found[i][axis]);
  return result;
}

Numbers eyeLike(const Operands& operands) {
  const Extents* extents = operands.evaluation.extents(*operands.node.operand(0));
  Numbers result = extents && extents->size() == 2 ? tensorOf(*extents) : nullptr;
  const auto k = static_cast<double>(operands.node.intAttr("k", 0));
  for (size_t e = 0; result && e < result->numbers.size(); ++e) {
    const Extents index = indexOf(static_cast<int64_t>(e), *extents);
    result->numbers[e] = static_cast<double>(index[1] - index[0]) == k ? 1 : 0;
  }
  return result;
}

struct Reduction {
  const char* name;
  double start;
  double (*combine)(double sum, double next);
  bool isMean = false;
  bool isBound = false;
};

constexpr Reduction reductions[] = {
    {"ReduceSum", 0, [](double a, double b) { return a + b; }},
    {"ReduceMean", 0, [](double a, double b) { return a + b; }, true},
    {"ReduceProd", 1, [](double a, double b) { return a * b; }},
    {"ReduceMax", -std::numeric_limits<double>::infinity(), larger, false, true},
    {"ReduceMin", std::numeric_limits<double>::infinity(), smaller, false, true},
};

Numbers reduce(const Operands& operands, const Reduction& reduction) {
  const NumberTensor* data = operands.at(0);
  const auto axes =
      data ? reducedAxes(operands.node, data->extents.size(), operands.evaluation) : std::nullopt;
  if (!axes)
    return nullptr;
  Extents kept = data->extents;
  double count = 1;
  for (unsigned axis : *axes) {
    count *= static_cast<double>(kept[axis]);
    kept[axis] = 1;
  }
  Numbers result = tensorOf(kept);
  if (!result)
    return nullptr;
  std::fill(result->numbers.begin(), result->numbers.end(), reduction.start);
  const bool mustBeExact = isInteger(operands.element()) && !reduction.isBound;
  bool ok = true;
  for (size_t e = 0; e < data->numbers.size(); ++e) {
    Extents index = indexOf(static_cast<int64_t>(e), data->extents);
    for (unsigned axis : *axes)
      index[axis] = 0;
    double& sum = result->numbers[static_cast<size_t>(elementAt(index, kept))];
    sum = reduction.combine(sum, data->numbers[e]);
    ok = ok && (!mustBeExact || isExact(sum));
  }
  for (double& number : result->numbers)
    number = heldBy(operands.element(), reduction.isMean ? number / count : number, ok);
  if (operands.node.intAttr("keepdims", 1) == 0)
    for (unsigned axis : llvm::reverse(*axes))
      result->extents.erase(result->extents.begin() + axis);
  return ok ? std::move(result) : nullptr;
}

Numbers argument(const Operands& operands, bool largest) {
  const NumberTensor* data = operands.at(0);
  const auto axis =
      data ? normalizedAxis(operands.node.intAttr("axis", 0), unsigned(data->extents.size()))
           : std::nullopt;
  if (!axis || data->extents[*axis] == 0 || operands.node.intAttr("select_last_index", 0) != 0)
    return nullptr;
  Extents kept = data->extents;
  kept[*axis] = 1;
  Numbers result = tensorOf(kept);
  const int64_t stride = rowMajorStrides(data->extents)[*axis];
  for (size_t e = 0; result && e < result->numbers.size(); ++e) {
    const int64_t first = elementAt(indexOf(static_cast<int64_t>(e), kept), data->extents);
    int64_t best = 0;
    for (int64_t i = 1; i < data->extents[*axis]; ++i) {
      const double next = data->numbers[static_cast<size_t>(first + i * stride)];
      const double so = data->numbers[static_cast<size_t>(first + best * stride)];
      if (isInteger(operands.elementOf(0)) && !isExact(so) && !isExact(next))
        return nullptr;
      if (!std::isnan(so) && (largest ? larger(so, next) : smaller(so, next)) != so)
        best = i;
    }
    result->numbers[e] = static_cast<double>(best);
  }
  if (result && operands.node.intAttr("keepdims", 1) == 0)
    result->extents.erase(result->extents.begin() + *axis);
  return result;
}

struct OtherOperator {
  const char* name;
  Numbers (*compute)(const Operands&);
};

constexpr OtherOperator otherOperators[] = {
    {"Cast", cast},
    {"CastLike", cast},
    {"Clip", clip},
    {"IsInf", isInfinite},
    {"Shape", shape},
    {"Size", size},
    {"ConstantOfShape", constantOfShape},
    {"Range", range},
    {"CumSum", cumulativeSum},
    {"OneHot", oneHot},
    {"NonZero", nonZero},
    {"EyeLike", eyeLike},
    {"ArgMax", [](const Operands& operands) { return argument(operands, true); }},
    {"ArgMin", [](const Operands& operands) { return argument(operands, false); }},
};

Numbers product(const Operands& operands) {
  auto sum = productOf(operands.node, operands.evaluation);
  const Extents* extents = operands.evaluation.extents(operands.node.result());
  const NumberTensor* left = sum ? operands.evaluation.numbers(*sum->left) : nullptr;
  const NumberTensor* right = sum ? operands.evaluation.numbers(*sum->right) : nullptr;
  Numbers result = left && right && extents ? tensorOf(*extents) : nullptr;
  constexpr int64_t mostProducts = int64_t{1} << 22;
  if (!result || static_cast<int64_t>(result->numbers.size()) > mostProducts / (sum->depth + 1))
    return nullptr;
  bool ok = true;
  for (size_t e = 0; e < result->numbers.size(); ++e) {
    double total = 0;
    for (int64_t k = 0; k < sum->depth; ++k) {
      int64_t a = 0, b = 0;
      sum->at(static_cast<int64_t>(e), k, a, b);
      total += left->numbers[static_cast<size_t>(a)] * right->numbers[static_cast<size_t>(b)];
    }
    result->numbers[e] = heldBy(operands.element(), total, ok);
  }
  return ok ? std::move(result) : nullptr;
}

} // namespace

std::optional<llvm::SmallVector<unsigned, 4>> reducedAxes(const Node& node, size_t rank,
                                                          Evaluation& evaluation) {
  llvm::SmallVector<unsigned, 4> axes;
  llvm::SmallVector<int64_t, 4> given;
  if (const auto written = node.intsAttr("axes")) {
    given.assign(written->begin(), written->end());
  } else if (const Value* list = node.operand(1)) {
    const NumberTensor* numbers = evaluation.numbers(*list);
    if (!numbers)
      return std::nullopt;
    for (double number : numbers->numbers)
      given.push_back(static_cast<int64_t>(number));
  }
  if (given.empty() && node.intAttr("noop_with_empty_axes", 0) == 0)
    for (size_t axis = 0; axis < rank; ++axis)
      given.push_back(static_cast<int64_t>(axis));
  for (int64_t axis : given) {
    const auto placed = normalizedAxis(axis, unsigned(rank));
    if (!placed)
      return std::nullopt;
    axes.push_back(*placed);
  }
  llvm::sort(axes);
  return axes;
}

std::unique_ptr<NumberTensor> numbersFrom(const Node& node, Evaluation& evaluation) {
  const Operands operands{node, evaluation};
  if (!node.op().isOnnx())
    return nullptr;
  const llvm::StringRef name = node.op().type();
  for (const UnaryOperator& entry : unaryOperators)
    if (name == entry.name)
      return unary(operands, entry.apply);
  for (const BinaryOperator& entry : binaryOperators)
    if (name == entry.name)
      return binary(operands, entry);
  for (const OtherOperator& entry : otherOperators)
    if (name == entry.name)
      return entry.compute(operands);
  for (const Reduction& entry : reductions)
    if (name == entry.name)
      return reduce(operands, entry);
  return product(operands);
}

bool isReduction(const Node& node) {
  return node.op().isOnnx() && llvm::any_of(reductions, [&](const Reduction& entry) {
           return node.op().type() == entry.name;
         });
}

} // namespace kvopt::analysis
