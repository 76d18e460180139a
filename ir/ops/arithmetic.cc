// Elementwise arithmetic, with the integer arithmetic that computes shapes.
#include "ir/ops/dim_combination.h"
#include "ir/shapes/shape_rules.h"

#include <limits>

namespace kvopt::ir {
namespace {

// The elements of a broadcast of two lists; nullopt where lengths do not tell.
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

// Truncating; symbolic only where the division is exact and the divisor cannot be 0.
Dim quotient(const Dim& a, const Dim& b) {
  if (!b.isKnownDifferent(Dim::fixed(0)))
    return Dim::unknown();
  if (a.value() && b.value())
    return *b.value() == -1 ? -a : Dim::fixed(*a.value() / *b.value());
  return a.dividedBy(b).value_or(Dim::unknown());
}

// The sign of the divisor (Python) or, with fmod, of the dividend (C).
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
  using Function = ElementFunction;
  const auto pair = [&](const char* name, Function function, ShapeRule rule) {
    define(registry, name, 7).in("A").in("B").out("C").elementwise(function).shape(rule);
  };
  pair("Add", Function::Sum, inferArithmetic<sum>);
  pair("Sub", Function::Sum, inferArithmetic<difference>);
  pair("Mul", Function::Product, inferArithmetic<product>);
  pair("Div", Function::Quotient, inferArithmetic<quotient>);
  define(registry, "Pow", 7)
      .in("X")
      .in("Y")
      .out("Z")
      .elementwise(Function::Nonlinear)
      .shape(inferBroadcast);
  define(registry, "Mod", 10)
      .in("A")
      .in("B")
      .out("C")
      .attr("fmod", int64_t{0})
      .elementwise(Function::Quotient)
      .shape(inferMod);
  const auto any = [&](const char* name, const char* result, int64_t since, Function function,
                       ShapeRule rule) {
    define(registry, name, since).in("data_0+").out(result).elementwise(function).shape(rule);
  };
  any("Min", "min", 8, Function::Bound, inferArithmetic<smaller>);
  any("Max", "max", 8, Function::Bound, inferArithmetic<larger>);
  any("Sum", "sum", 6, Function::Sum, inferBroadcast);
  any("Mean", "mean", 6, Function::Sum, inferBroadcast);
  const auto ofOne = [&](const char* name, int64_t since, Function function, ShapeRule rule) {
    define(registry, name, since).in("X").out("Y").elementwise(function).shape(rule);
  };
  ofOne("Neg", 6, Function::Sum, inferNeg);
  ofOne("Abs", 6, Function::Nonlinear, inferAbs);
  for (const char* name : {"Sqrt", "Reciprocal", "Exp"})
    ofOne(name, 6, Function::Nonlinear, inferSameAsFirst);
  ofOne("Floor", 6, Function::Rounding, inferSameAsFirst);
  ofOne("Ceil", 6, Function::Rounding, inferSameAsFirst);
  ofOne("Round", 11, Function::Rounding, inferSameAsFirst);
  ofOne("Softplus", 1, Function::Nonlinear, inferSameAsFirst);
  struct Named {
    const char* name;
    int64_t since;
  };
  for (const auto& [name, since] :
       {Named{"Log", 6}, Named{"Sin", 7}, Named{"Cos", 7}, Named{"Tan", 7}, Named{"Asin", 7},
        Named{"Acos", 7}, Named{"Atan", 7}, Named{"Sinh", 9}, Named{"Cosh", 9}, Named{"Asinh", 9},
        Named{"Acosh", 9}, Named{"Atanh", 9}, Named{"Sign", 9}})
    define(registry, name, since)
        .in("input")
        .out("output")
        .elementwise(Function::Nonlinear)
        .shape(inferSameAsFirst);
  define(registry, "Clip", 6)
      .in("input")
      .out("output")
      .attr("min", std::numeric_limits<float>::lowest())
      .attr("max", std::numeric_limits<float>::max())
      .elementwise(Function::Bound)
      .shape(inferSameAsFirst);
  define(registry, "Clip", 11)
      .in("input")
      .in("min?")
      .in("max?")
      .out("output")
      .elementwise(Function::Bound)
      .shape(inferSameAsFirst);
}

} // namespace kvopt::ir
