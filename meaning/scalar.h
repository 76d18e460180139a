// Formulas that read like the text of a definition.
#pragma once

#include "meaning/expression/formulas.h"

namespace kvopt::meaning {

/// A formula together with where it is made. Operators make new ones. Where one side is an integer
/// and the other a real, the integer is converted; a boolean counts as 0 or 1.
class Scalar {
public:
  Scalar() = default;
  Scalar(Formulas& formulas, Expr expr) : formulas_(&formulas), expr_(expr) {}

  Formulas& formulas() const { return *formulas_; }
  Expr expr() const { return expr_; }
  Sort sort() const { return formulas_->sortOf(expr_); }
  bool isReal() const { return sort() == Sort::Real; }
  bool isBoolean() const { return sort() == Sort::Boolean; }
  /// The number, if it is an integer that is known.
  std::optional<int64_t> number() const { return formulas_->integerOf(expr_); }
  bool is(int64_t value) const { return number() == value; }

  /// A number of the sort of this one.
  Scalar like(double value) const;
  Scalar integer(int64_t value) const { return {*formulas_, formulas_->integer(value)}; }
  Scalar boolean(bool value) const { return {*formulas_, formulas_->boolean(value)}; }
  Scalar real(double value) const { return {*formulas_, formulas_->real(value)}; }

private:
  Formulas* formulas_ = nullptr;
  Expr expr_;
};

using Scalars = llvm::SmallVector<Scalar, 6>;
/// Indices of an element, one for each axis, or extents.
using Index = llvm::ArrayRef<Scalar>;

Scalar operator+(Scalar a, Scalar b);
Scalar operator-(Scalar a, Scalar b);
Scalar operator*(Scalar a, Scalar b);
Scalar operator-(Scalar a);
inline Scalar operator+(Scalar a, double b) { return a + a.like(b); }
inline Scalar operator-(Scalar a, double b) { return a - a.like(b); }
inline Scalar operator*(Scalar a, double b) { return a * a.like(b); }
inline Scalar operator+(double a, Scalar b) { return b.like(a) + b; }
inline Scalar operator-(double a, Scalar b) { return b.like(a) - b; }
inline Scalar operator*(double a, Scalar b) { return b.like(a) * b; }
/// Of reals.
Scalar operator/(Scalar a, Scalar b);
inline Scalar operator/(Scalar a, double b) { return a / a.real(b); }
inline Scalar operator/(double a, Scalar b) { return b.real(a) / b; }
/// Of integers: rounded down, and what is left.
Scalar quotient(Scalar a, Scalar b);
Scalar remainder(Scalar a, Scalar b);
Scalar quotientUp(Scalar a, Scalar b);
/// Of integers: rounded towards zero.
Scalar truncatedQuotient(Scalar a, Scalar b);
inline Scalar quotient(Scalar a, int64_t b) { return quotient(a, a.integer(b)); }
inline Scalar remainder(Scalar a, int64_t b) { return remainder(a, a.integer(b)); }

Scalar minimum(Scalar a, Scalar b);
Scalar maximum(Scalar a, Scalar b);
inline Scalar minimum(Scalar a, double b) { return minimum(a, a.like(b)); }
inline Scalar maximum(Scalar a, double b) { return maximum(a, a.like(b)); }

Scalar operator<(Scalar a, Scalar b);
Scalar operator<=(Scalar a, Scalar b);
inline Scalar operator>(Scalar a, Scalar b) { return b < a; }
inline Scalar operator>=(Scalar a, Scalar b) { return b <= a; }
inline Scalar operator<(Scalar a, double b) { return a < a.like(b); }
inline Scalar operator<=(Scalar a, double b) { return a <= a.like(b); }
inline Scalar operator>(Scalar a, double b) { return a > a.like(b); }
inline Scalar operator>=(Scalar a, double b) { return a >= a.like(b); }
/// Whether two are equal; of booleans, whether both hold or neither does.
Scalar same(Scalar a, Scalar b);
inline Scalar same(Scalar a, double b) { return same(a, a.like(b)); }
Scalar operator!(Scalar a);
/// Not lazy: both sides are made.
Scalar both(Scalar a, Scalar b);
Scalar either(Scalar a, Scalar b);

/// What a function makes is made where the condition holds, or where it does not.
Scalar select(Scalar condition, llvm::function_ref<Scalar()> a, llvm::function_ref<Scalar()> b);
Scalar select(Scalar condition, Scalar a, Scalar b);

Scalar toReal(Scalar a);
/// Rounded towards zero.
Scalar toInteger(Scalar a);
/// Whether it is not 0.
Scalar toBoolean(Scalar a);
Scalar apply(Function function, Scalar a);
Scalar apply(Function function, Scalar a, Scalar b);
/// The integer of a type that is left of one without bounds.
Scalar wrapped(Scalar a, ir::ElementType type);
Scalar absolute(Scalar a);

Scalar reduce(Reduction reduction, Scalar extent, llvm::function_ref<Scalar(Scalar)> body);
inline Scalar sum(Scalar extent, llvm::function_ref<Scalar(Scalar)> body) {
  return reduce(Reduction::Sum, extent, body);
}
Scalar last(Scalar extent, llvm::function_ref<Scalar(Scalar)> condition,
            llvm::function_ref<Scalar(Scalar)> body, Scalar otherwise);

/// The product of extents; 1 for none.
Scalar product(Formulas& formulas, Index extents);

} // namespace kvopt::meaning
