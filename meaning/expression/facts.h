// What holds on a branch of a formula.
#pragma once

#include "meaning/expression/polynomial.h"

#include <vector>

namespace kvopt::meaning {

/// Conditions that hold together. Each set that occurs has a number; a number and a formula are the
/// key of everything that is remembered.
class Facts {
public:
  /// The number of a set. 0 is the empty one.
  using Path = uint32_t;

  explicit Facts(Arena& arena, Polynomials& polynomials)
      : arena_(arena), polynomials_(polynomials), sets_(1) {}

  /// The facts of `path`, and that a boolean holds, or does not.
  Path with(Path path, Expr condition, bool holds);

  /// Integers that are known to be at least 0, the latest first.
  llvm::SmallVector<Expr> nonNegative(Path path) const;
  /// Whether a boolean holds, where that was said in these words.
  std::optional<bool> truthOf(Path path, Expr condition) const;

private:
  struct Truth {
    Expr condition;
    bool holds = true;
  };
  struct Set {
    Path parent = 0;
    llvm::SmallVector<Truth, 2> truths;
    llvm::SmallVector<Expr, 2> nonNegative;
  };
  void note(Set& set, Expr condition, bool holds);

  Arena& arena_;
  Polynomials& polynomials_;
  std::vector<Set> sets_;
  llvm::DenseMap<std::pair<Path, uint64_t>, Path> numbers_;
};

} // namespace kvopt::meaning
