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
  define(registry, "Add", 7).in("A").in("B").out("C").shape(inferArithmetic<sum>);
  define(registry, "Sub", 7).in("A").in("B").out("C").shape(inferArithmetic<difference>);
  define(registry, "Mul", 7).in("A").in("B").out("C").shape(inferArithmetic<product>);
  define(registry, "Div", 7).in("A").in("B").out("C").shape(inferArithmetic<quotient>);
  define(registry, "Pow", 7).in("X").in("Y").out("Z").shape(inferBroadcast);
  define(registry, "Mod", 10).in("A").in("B").out("C").attr("fmod", int64_t{0}).shape(inferMod);
  define(registry, "Min", 8).in("data_0+").out("min").shape(inferArithmetic<smaller>);
  define(registry, "Max", 8).in("data_0+").out("max").shape(inferArithmetic<larger>);
  define(registry, "Neg", 6).in("X").out("Y").shape(inferNeg);
  define(registry, "Abs", 6).in("X").out("Y").shape(inferAbs);
  for (const char* name : {"Sqrt", "Reciprocal", "Exp", "Floor", "Ceil"})
    define(registry, name, 6).in("X").out("Y").shape(inferSameAsFirst);
  define(registry, "Log", 6).in("input").out("output").shape(inferSameAsFirst);
  for (const char* name : {"Sin", "Cos"})
    define(registry, name, 7).in("input").out("output").shape(inferSameAsFirst);
  define(registry, "Softplus", 1).in("X").out("Y").shape(inferSameAsFirst);
  define(registry, "Round", 11).in("X").out("Y").shape(inferSameAsFirst);
  define(registry, "Sign", 9).in("input").out("output").shape(inferSameAsFirst);
  define(registry, "Clip", 6)
      .in("input")
      .out("output")
      .attr("min", std::numeric_limits<float>::lowest())
      .attr("max", std::numeric_limits<float>::max())
      .shape(inferSameAsFirst);
  define(registry, "Clip", 11)
      .in("input")
      .in("min?")
      .in("max?")
      .out("output")
      .shape(inferSameAsFirst);
}

} // namespace kvopt::ir
