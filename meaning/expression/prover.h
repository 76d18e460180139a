// Proofs that an integer is never negative.
#pragma once

#include "meaning/expression/facts.h"
#include "meaning/expression/names.h"

namespace kvopt::meaning {

/// Proves linear facts about integers: what holds for all values that symbols, indices and elements
/// may have. It is sound and not complete: false means "not proved". The work for one question is
/// bounded, whatever it is.
class Prover {
public:
  Prover(Arena& arena, Polynomials& polynomials, const Names& names, Facts& facts)
      : arena_(arena), polynomials_(polynomials), names_(names), facts_(facts) {}

  bool isNonNegative(Expr integer, Facts::Path path);
  bool isPositive(Expr integer, Facts::Path path) {
    return isNonNegative(polynomials_.sum(integer, polynomials_.number(-1)), path);
  }
  /// Whether 0 <= a < b.
  bool isBelow(Expr a, Expr b, Facts::Path path) {
    return isNonNegative(a, path) && isPositive(polynomials_.sum(b, a, -1), path);
  }

  /// Bounds by numbers alone, without facts.
  Range rangeOf(Expr integer) { return rangeOf(integer, mostNesting); }

  /// How many inequalities were looked at so far. It grows by at most `mostSteps` for a question.
  size_t steps() const { return steps_; }
  static constexpr size_t mostSteps = 4000;

private:
  static constexpr unsigned mostDepth = 14;  ///< of atoms that are replaced by their bounds
  static constexpr unsigned mostFacts = 2;   ///< that are added up
  static constexpr unsigned mostNesting = 4; ///< of proofs that proofs need

  bool prove(Expr integer, Facts::Path path, unsigned facts, unsigned depth);
  bool proveByBound(Expr integer, Facts::Path path, unsigned facts, unsigned depth,
                    bool& isDecided);
  bool proveQuotient(Expr atom, const Polynomials::Linear& linear, bool isUp, Facts::Path path,
                     unsigned facts, unsigned depth);
  bool proveByFacts(Expr integer, Facts::Path path, unsigned facts, unsigned depth);
  Range rangeOf(Expr integer, unsigned nesting);
  Range rangeOfAtom(Expr atom, unsigned nesting);

  Arena& arena_;
  Polynomials& polynomials_;
  const Names& names_;
  Facts& facts_;
  llvm::DenseMap<std::pair<uint32_t, Facts::Path>, bool> known_;
  size_t steps_ = 0;
  size_t limit_ = 0; ///< of `steps_`, for the question that is open
  unsigned nesting_ = 0;
};

} // namespace kvopt::meaning
