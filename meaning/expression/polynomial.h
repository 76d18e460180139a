// Integers as polynomials over atoms: what is neither a number, a sum nor a product.
#pragma once

#include "meaning/expression/arena.h"

#include <optional>
#include <utility>

namespace kvopt::meaning {

/// coefficient * monomial. The monomial is a product of atoms, one atom, or the number 1.
struct Term {
  Expr monomial;
  int64_t coefficient = 0;
};

/// Arithmetic of polynomials. It knows nothing of what atoms mean: every identity holds in every
/// commutative ring. Sums and products with too many terms, or with coefficients that do not fit,
/// are nodes `Wide`, which are atoms.
class Polynomials {
public:
  static constexpr size_t mostTerms = 200;
  static constexpr size_t mostDegree = 12;

  explicit Polynomials(Arena& arena);

  Expr number(int64_t value) const;
  std::optional<int64_t> valueOf(Expr expr) const;

  /// The terms of an integer, ordered by monomial; none for 0.
  llvm::SmallVector<Term> terms(Expr expr) const;
  llvm::ArrayRef<Expr> factors(const Expr& monomial) const;
  /// The atoms that occur, each once, ordered.
  llvm::SmallVector<Expr> atoms(Expr expr) const;
  /// The number without atoms.
  int64_t constantOf(Expr expr) const;

  /// a + by * b.
  Expr sum(Expr a, Expr b, int64_t by = 1);
  Expr product(Expr a, Expr b);
  Expr scaled(Expr a, int64_t by) { return product(a, number(by)); }
  Expr ofTerms(llvm::SmallVectorImpl<Term>& terms);

  /// q and r with a = q*b + r, where no term of r is divisible by the leading one of b.
  std::pair<Expr, Expr> divide(Expr a, Expr b);
  /// q with a = q*b; none if there is none.
  std::optional<Expr> quotient(Expr a, Expr b);
  /// The greatest number and product of atoms that divides all terms of both; 1 for two zeros.
  Expr commonFactor(Expr a, Expr b);

  struct Linear {
    Expr factor, rest;
  };
  /// The polynomial as factor * atom + rest, neither of which has the atom; none where a power of
  /// it occurs.
  std::optional<Linear> linearIn(Expr expr, Expr atom);
  /// The polynomial with another integer in the place of an atom.
  Expr replaced(Expr expr, Expr atom, Expr by);

private:
  Expr monomialOf(llvm::SmallVectorImpl<Expr>& atoms);

  Arena& arena_;
  Expr one_;
};

} // namespace kvopt::meaning
