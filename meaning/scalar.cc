// Sorts of both sides are made one, and the formula is made by `Formulas`.
#include "meaning/scalar.h"

#include "ir/element_type.h"

#include <algorithm>

namespace kvopt::meaning {

namespace {

Scalar numeric(Scalar a) { return a.isBoolean() ? select(a, a.integer(1), a.integer(0)) : a; }

/// Both as integers, or both as reals.
std::pair<Scalar, Scalar> alike(Scalar a, Scalar b) {
  a = numeric(a);
  b = numeric(b);
  if (a.isReal() == b.isReal())
    return {a, b};
  return {toReal(a), toReal(b)};
}

/// Reals are rounded towards zero.
Scalar whole(Scalar a) { return toInteger(a.isBoolean() ? toReal(a) : a); }

Scalar made(const Scalar& a, Expr expr) { return {a.formulas(), expr}; }

} // namespace

Scalar Scalar::like(double value) const {
  if (isReal())
    return real(value);
  // An infinity is no integer.
  const double most = 0x1p62;
  return integer(static_cast<int64_t>(std::max(-most, std::min(most, value))));
}

Scalar operator+(Scalar a, Scalar b) {
  std::tie(a, b) = alike(a, b);
  return a.isReal() ? apply(Function::Add, a, b) : made(a, a.formulas().add(a.expr(), b.expr()));
}

Scalar operator-(Scalar a, Scalar b) {
  std::tie(a, b) = alike(a, b);
  return a.isReal() ? apply(Function::Add, a, -b)
                    : made(a, a.formulas().subtract(a.expr(), b.expr()));
}

Scalar operator*(Scalar a, Scalar b) {
  std::tie(a, b) = alike(a, b);
  return a.isReal() ? apply(Function::Multiply, a, b)
                    : made(a, a.formulas().multiply(a.expr(), b.expr()));
}

Scalar operator-(Scalar a) { return a * a.like(-1); }

Scalar operator/(Scalar a, Scalar b) { return apply(Function::Divide, toReal(a), toReal(b)); }

Scalar quotient(Scalar a, Scalar b) {
  a = whole(a);
  b = whole(b);
  return made(a, a.formulas().quotient(a.expr(), b.expr()));
}

Scalar remainder(Scalar a, Scalar b) {
  a = whole(a);
  b = whole(b);
  return made(a, a.formulas().remainder(a.expr(), b.expr()));
}

Scalar quotientUp(Scalar a, Scalar b) {
  a = whole(a);
  b = whole(b);
  return made(a, a.formulas().quotientUp(a.expr(), b.expr()));
}

Scalar truncatedQuotient(Scalar a, Scalar b) {
  a = whole(a);
  b = whole(b);
  // Rounded down, and one more where that is not towards zero.
  const Scalar down = quotient(a, b);
  const Scalar isWhole = same(remainder(a, b), 0), isAlike = same(a < 0, b < 0);
  return select(either(isWhole, isAlike), down, down + 1.0);
}

namespace {

Scalar extreme(Scalar a, Scalar b, bool isLeast) {
  std::tie(a, b) = alike(a, b);
  if (a.isReal())
    return apply(isLeast ? Function::Minimum : Function::Maximum, a, b);
  return made(a, isLeast ? a.formulas().minimum(a.expr(), b.expr())
                         : a.formulas().maximum(a.expr(), b.expr()));
}

Scalar compared(Comparison comparison, Scalar a, Scalar b) {
  std::tie(a, b) = alike(a, b);
  Formulas& f = a.formulas();
  if (a.isReal())
    return made(a, f.compared(comparison, a.expr(), b.expr()));
  return made(a, comparison == Comparison::Less          ? f.below(a.expr(), b.expr())
                 : comparison == Comparison::LessOrEqual ? f.atMost(a.expr(), b.expr())
                                                         : f.equal(a.expr(), b.expr()));
}

} // namespace

Scalar minimum(Scalar a, Scalar b) { return extreme(a, b, true); }
Scalar maximum(Scalar a, Scalar b) { return extreme(a, b, false); }
Scalar operator<(Scalar a, Scalar b) { return compared(Comparison::Less, a, b); }
Scalar operator<=(Scalar a, Scalar b) { return compared(Comparison::LessOrEqual, a, b); }

Scalar same(Scalar a, Scalar b) {
  if (a.isBoolean() && b.isBoolean())
    return made(a, a.formulas().agreement(a.expr(), b.expr()));
  return compared(Comparison::Equal, a, b);
}

Scalar operator!(Scalar a) { return made(a, a.formulas().negation(toBoolean(a).expr())); }

Scalar both(Scalar a, Scalar b) {
  return made(a, a.formulas().conjunction({toBoolean(a).expr(), toBoolean(b).expr()}));
}

Scalar either(Scalar a, Scalar b) {
  return made(a, a.formulas().disjunction({toBoolean(a).expr(), toBoolean(b).expr()}));
}

Scalar select(Scalar condition, llvm::function_ref<Scalar()> a, llvm::function_ref<Scalar()> b) {
  return made(condition, condition.formulas().select(
                             toBoolean(condition).expr(), [&] { return a().expr(); },
                             [&] { return b().expr(); }));
}

Scalar select(Scalar condition, Scalar a, Scalar b) {
  if (a.sort() != b.sort())
    std::tie(a, b) = alike(a, b);
  condition = toBoolean(condition);
  return made(condition, condition.formulas().select(condition.expr(), a.expr(), b.expr()));
}

Scalar toReal(Scalar a) { return made(a, a.formulas().toReal(a.expr())); }
Scalar toInteger(Scalar a) { return made(a, a.formulas().toInteger(a.expr())); }
Scalar toBoolean(Scalar a) { return a.isBoolean() ? a : !same(a, a.like(0)); }

Scalar apply(Function function, Scalar a) {
  a = toReal(a);
  return made(a, a.formulas().function(function, {a.expr()}));
}

Scalar apply(Function function, Scalar a, Scalar b) {
  a = toReal(a);
  b = toReal(b);
  return made(a, a.formulas().function(function, {a.expr(), b.expr()}));
}

Scalar wrapped(Scalar a, ir::ElementType type) {
  if (a.sort() != Sort::Integer || type == ir::ElementType::Bool)
    return a;
  return made(a, a.formulas().wrapped(a.expr(), type));
}

Scalar absolute(Scalar a) { return a.isReal() ? apply(Function::Absolute, a) : maximum(a, -a); }

Scalar reduce(Reduction reduction, Scalar extent, llvm::function_ref<Scalar(Scalar)> body) {
  return made(extent, extent.formulas().reduce(reduction, extent.expr(), [&](Expr k) {
    return body(made(extent, k)).expr();
  }));
}

Scalar last(Scalar extent, llvm::function_ref<Scalar(Scalar)> condition,
            llvm::function_ref<Scalar(Scalar)> body, Scalar otherwise) {
  return made(extent, extent.formulas().last(
                          extent.expr(), [&](Expr k) { return condition(made(extent, k)).expr(); },
                          [&](Expr k) { return body(made(extent, k)).expr(); }, otherwise.expr()));
}

Scalar product(Formulas& formulas, Index extents) {
  Scalar all(formulas, formulas.integer(1));
  for (Scalar extent : extents)
    all = all * extent;
  return all;
}

} // namespace kvopt::meaning
