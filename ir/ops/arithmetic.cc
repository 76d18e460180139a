// Elementwise arithmetic, including the integer arithmetic that computes shapes.
#include "ir/elementwise_definition.h"
#include "ir/ops/dim_combination.h"
#include "ir/shapes/shape_rules.h"

#include <limits>

namespace kvopt::ir {
namespace {

// Elements of two lists after broadcasting; nullopt if the lengths do not determine it.
std::optional<Integers> combine(const std::optional<Integers>& a, const std::optional<Integers>& b,
                                Combine operation) {
  if (!a || !b || (a->size() != b->size() && a->size() != 1 && b->size() != 1))
    return std::nullopt;
  size_t count = a->size() == 1 ? b->size() : a->size();
  Integers result;
  for (size_t i = 0; i < count; ++i)
    result.push_back(operation((*a)[a->size() == 1 ? 0 : i], (*b)[b->size() == 1 ? 0 : i]));
  return result;
}

void setArithmetic(ShapeContext& context, std::optional<Integers> elements) {
  if (elements)
    for (Dim& element : *elements)
      element = heldBy(context.element(0), element);
  context.setIntegers(0, std::move(elements));
}

template <Combine operation> llvm::Error inferArithmetic(ShapeContext& context) {
  if (llvm::Error error = inferBroadcast(context))
    return error;
  unsigned count = static_cast<unsigned>(context.node().operands().size());
  std::optional<Integers> elements = context.integers(0);
  for (unsigned i = 1; i < count; ++i)
    elements = combine(elements, context.integers(i), operation);
  setArithmetic(context, std::move(elements));
  return llvm::Error::success();
}

Dim difference(const Dim& a, const Dim& b) { return a - b; }

// Truncating division; symbolic only if it is exact and the divisor cannot be 0.
Dim quotient(const Dim& a, const Dim& b) {
  if (!b.isKnownDifferent(Dim::fixed(0)))
    return Dim::unknown();
  if (a.value() && b.value())
    return *b.value() == -1 ? -a : Dim::fixed(*a.value() / *b.value());
  return a.dividedBy(b).value_or(Dim::unknown());
}

// Remainder with the sign of the divisor (Python) or, with fmod, of the dividend (C).
template <bool likeC> Dim remainder(const Dim& a, const Dim& b) {
  if (!b.isKnownDifferent(Dim::fixed(0)))
    return Dim::unknown();
  if (!a.value() || !b.value())
    return a.dividedBy(b) ? Dim::fixed(0) : Dim::unknown();
  int64_t divisor = *b.value();
  int64_t rest = divisor == -1 ? 0 : *a.value() % divisor;
  if (!likeC && rest != 0 && (rest < 0) != (divisor < 0))
    rest += divisor;
  return Dim::fixed(rest);
}

llvm::Error inferMod(ShapeContext& context) {
  return context.node().intAttr("fmod", 0) != 0 ? inferArithmetic<remainder<true>>(context)
                                                : inferArithmetic<remainder<false>>(context);
}

llvm::Error inferNeg(ShapeContext& context) {
  context.setResult(0, context.type(0));
  std::optional<Integers> elements = context.integers(0);
  if (elements)
    for (Dim& element : *elements)
      element = -element;
  setArithmetic(context, std::move(elements));
  return llvm::Error::success();
}

llvm::Error inferAbs(ShapeContext& context) {
  context.setResult(0, context.type(0));
  std::optional<Integers> elements = context.integers(0);
  if (elements)
    for (Dim& element : *elements)
      if (!element.isKnownNonNegative())
        element = (-element).isKnownNonNegative() ? -element : Dim::unknown();
  setArithmetic(context, std::move(elements));
  return llvm::Error::success();
}

} // namespace

void register_arithmetic(OpRegistry& registry) {
  using enum ElementFunction;
  defineElementwise(registry, "Add", 7, {"A", "B"}, "C", Sum, inferArithmetic<sum>);
  defineElementwise(registry, "Sub", 7, {"A", "B"}, "C", Sum, inferArithmetic<difference>);
  defineElementwise(registry, "Mul", 7, {"A", "B"}, "C", Product, inferArithmetic<product>);
  defineElementwise(registry, "Div", 7, {"A", "B"}, "C", Quotient, inferArithmetic<quotient>);
  defineElementwise(registry, "Pow", 7, {"X", "Y"}, "Z", Nonlinear, inferBroadcast);
  defineElementwise(registry, "Mod", 10, {"A", "B"}, "C", Quotient, inferMod)
      .attr("fmod", int64_t{0});
  defineElementwise(registry, "Min", 8, {"data_0+"}, "min", Bound, inferArithmetic<smaller>);
  defineElementwise(registry, "Max", 8, {"data_0+"}, "max", Bound, inferArithmetic<larger>);
  defineElementwise(registry, "Sum", 6, {"data_0+"}, "sum", Sum, inferBroadcast);
  defineElementwise(registry, "Mean", 6, {"data_0+"}, "mean", Sum, inferBroadcast);
  defineElementwise(registry, "Neg", 6, {"X"}, "Y", Sum, inferNeg);
  defineElementwise(registry, "Abs", 6, {"X"}, "Y", Nonlinear, inferAbs);
  defineElementwise(registry, "Floor", 6, {"X"}, "Y", Rounding, inferSameAsFirst);
  defineElementwise(registry, "Ceil", 6, {"X"}, "Y", Rounding, inferSameAsFirst);
  defineElementwise(registry, "Round", 11, {"X"}, "Y", Rounding, inferSameAsFirst);
  defineElementwise(registry, "Softplus", 1, {"X"}, "Y", Nonlinear, inferSameAsFirst);
  for (const char* name : {"Sqrt", "Reciprocal", "Exp"})
    defineElementwise(registry, name, 6, {"X"}, "Y", Nonlinear, inferSameAsFirst);
  const auto function = [&](const char* name, int64_t since) {
    defineElementwise(registry, name, since, {"input"}, "output", Nonlinear, inferSameAsFirst);
  };
  function("Log", 6);
  for (const char* name : {"Sin", "Cos", "Tan", "Asin", "Acos", "Atan"})
    function(name, 7);
  for (const char* name : {"Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Sign"})
    function(name, 9);
  defineElementwise(registry, "Clip", 6, {"input"}, "output", Bound, inferSameAsFirst)
      .attr("min", std::numeric_limits<float>::lowest())
      .attr("max", std::numeric_limits<float>::max());
  defineElementwise(registry, "Clip", 11, {"input", "min?", "max?"}, "output", Bound,
                    inferSameAsFirst);
}

} // namespace kvopt::ir
