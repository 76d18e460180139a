// Makes formulas, simplified.
#pragma once

#include "meaning/expression/prover.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <functional>

namespace kvopt::ir {
enum class ElementType : int32_t;
}

namespace kvopt::meaning {

/// The formulas of one question, and the only code that simplifies them. A result means the same as
/// what it was made of, for all values of symbols, indices and elements that the facts of the
/// branch allow: whatever is built while a `Branch` is open holds on that branch only.
///
/// Integers have no bounds. A quotient is rounded down, and the remainder fits it.
///
///   Formulas f;
///   const Expr past = f.symbol("P", {0, mostExtent}), i = f.index("i", f.add(past,
///   f.symbol("S"))); f.quotient(f.add(f.multiply(past, i), f.integer(0)), past);
class Formulas {
public:
  /// What is allowed to numbers that round.
  enum class Reals : uint8_t {
    Exact,    ///< nothing is reordered or computed: for numbers that must be those of a model
    OverReals ///< as if nothing rounded: for reading what a model computes, and for proofs
  };

  explicit Formulas(Reals reals = Reals::Exact, size_t mostNodes = size_t(1) << 22);

  // Leaves. A symbol, an index and a value are new ones, whatever their names.

  Expr integer(int64_t value);
  Expr boolean(bool value);
  Expr real(double value);
  Expr symbol(llvm::StringRef name, Range range = {1, mostExtent}) {
    return symbol(Named{name.str(), range});
  }
  Expr symbol(Named named);
  Expr index(llvm::StringRef name, Expr extent);
  int64_t named(Named value);
  /// The element of a named value at indices.
  Expr element(int64_t value, Sort sort, llvm::ArrayRef<Expr> indices);
  /// Nothing is known of it, not even that it equals itself elsewhere.
  Expr unknown(Sort sort);

  std::optional<int64_t> integerOf(Expr expr) const { return polynomials_.valueOf(expr); }
  std::optional<bool> booleanOf(Expr expr) const;
  std::optional<double> realOf(Expr expr) const;
  Sort sortOf(Expr expr) const { return arena_[expr].sort; }
  /// Whether it is a symbol whose value nobody knows.
  bool isOpaque(Expr expr) const;

  // Integers.

  Expr add(Expr a, Expr b) { return polynomials_.sum(a, b); }
  Expr subtract(Expr a, Expr b) { return polynomials_.sum(a, b, -1); }
  Expr multiply(Expr a, Expr b) { return polynomials_.product(a, b); }
  Expr scaled(Expr a, int64_t by) { return polynomials_.scaled(a, by); }
  Expr quotient(Expr a, Expr b);
  Expr remainder(Expr a, Expr b);
  /// The quotient rounded up.
  Expr quotientUp(Expr a, Expr b) { return scaled(quotient(scaled(a, -1), b), -1); }
  Expr minimum(Expr a, Expr b) { return extreme(Op::Minimum, a, b); }
  Expr maximum(Expr a, Expr b) { return extreme(Op::Maximum, a, b); }
  /// The integer of a type that equals `a` modulo 2^bits.
  Expr wrapped(Expr a, ir::ElementType type);

  // Booleans.

  Expr nonNegative(Expr integer);
  Expr isZero(Expr integer);
  /// a <= b, a < b and a = b of two integers.
  Expr atMost(Expr a, Expr b) {
    // A difference of numbers may have no 64 bits.
    const std::optional<int64_t> x = integerOf(a), y = integerOf(b);
    return x && y ? boolean(*x <= *y) : nonNegative(subtract(b, a));
  }
  Expr below(Expr a, Expr b) {
    const std::optional<int64_t> x = integerOf(a), y = integerOf(b);
    return x && y ? boolean(*x < *y) : nonNegative(add(subtract(b, a), integer(-1)));
  }
  Expr equal(Expr a, Expr b) { return isZero(subtract(a, b)); }
  Expr negation(Expr boolean);
  Expr conjunction(llvm::ArrayRef<Expr> booleans) { return combined(Op::And, booleans); }
  Expr disjunction(llvm::ArrayRef<Expr> booleans) { return combined(Op::Or, booleans); }
  /// Whether two booleans are the same.
  Expr agreement(Expr a, Expr b);
  Expr compared(Comparison comparison, Expr a, Expr b);

  // Reals.

  Expr function(Function function, llvm::ArrayRef<Expr> reals);
  /// 0 and 1 for booleans.
  Expr toReal(Expr integer);
  /// Rounded towards zero.
  Expr toInteger(Expr real);

  // Choices. What a function makes is made on its branch.

  Expr select(Expr condition, Expr a, Expr b);
  Expr select(Expr condition, llvm::function_ref<Expr()> a, llvm::function_ref<Expr()> b);

  // Reductions over an index, which only the function sees.

  Expr reduce(Reduction reduction, Expr extent, llvm::function_ref<Expr(Expr)> body);
  /// The body at the last index for which a condition holds, else `otherwise`: what is left after
  /// updates in the order of the index.
  Expr last(Expr extent, llvm::function_ref<Expr(Expr)> condition,
            llvm::function_ref<Expr(Expr)> body, Expr otherwise);

  /// The body (operand 1) or the condition (operand 2) of a reduction for this index.
  Expr opened(Expr reduction, unsigned operand, Expr index);
  /// The operator of a node that binds nothing, with other operands of the same sorts.
  Expr remade(Expr original, llvm::ArrayRef<Expr> operands);
  /// Makes a reduction of bodies that read an index.
  Expr closed(Reduction reduction, Expr index, Expr extent, Expr body);
  Expr closedLast(Expr index, Expr extent, Expr condition, Expr body, Expr otherwise);

  /// While it exists, a boolean holds (or does not), and what is made relies on it.
  class Branch {
  public:
    Branch(Formulas& formulas, Expr condition, bool holds = true);
    Branch(Formulas& formulas, Facts::Path path);
    Branch(const Branch&) = delete;
    Branch& operator=(const Branch&) = delete;
    ~Branch() { formulas_.path_ = before_; }

  private:
    Formulas& formulas_;
    Facts::Path before_;
  };
  Facts::Path path() const { return path_; }
  bool isProvedNonNegative(Expr integer) { return prover_.isNonNegative(integer, path_); }

  Reals reals() const { return reals_; }
  const Arena& arena() const { return arena_; }
  Polynomials& polynomials() { return polynomials_; }
  const Names& names() const { return names_; }
  Prover& prover() { return prover_; }

private:
  /// A real that is an integer divided by a positive number.
  struct Ratio {
    Expr numerator;
    int64_t denominator = 1;
  };

  struct Division {
    Expr quotient, rest; ///< a = quotient*b + rest
    Expr factor;         ///< divides b, and rest = factor*upper + lower with 0 <= lower < factor
    Expr upper, lower;
  };
  /// Takes from a division what is whole; `isDone` where the rest is below the divisor.
  Division divided(Expr a, Expr b, bool& isDone);
  bool findFactor(Division& division, Expr b);

  Expr intern(Op op, Sort sort, llvm::ArrayRef<Expr> operands, int64_t value = 0,
              unsigned detail = 0) {
    return arena_.intern(op, sort, operands, value, static_cast<uint16_t>(detail));
  }
  Expr extreme(Op op, Expr a, Expr b);
  Expr combined(Op op, llvm::ArrayRef<Expr> booleans);
  /// What is known of a boolean here.
  std::optional<bool> decided(Expr boolean);
  Expr chosen(Expr condition, Expr a, Expr b);
  /// f of the parts of a choice that occurs in an integer; none where there is no such choice.
  Expr lifted(Expr integer, llvm::function_ref<Expr(Expr)> f);
  bool isTableOfNumbers(Expr expr) const;
  std::optional<Ratio> ratioOf(Expr real);
  Expr simpleFunction(Function function, llvm::ArrayRef<Expr> reals);
  Expr solved(Expr index, Expr extent, Expr condition, Expr body, Expr otherwise);
  /// The formula with one index in the place of another, which occurs nowhere in it.
  Expr renamed(Expr expr, Expr from, Expr to);
  Expr reordered(Expr original, llvm::MutableArrayRef<Expr> operands);

  static constexpr unsigned mostDepth = 24; ///< of rules that use rules on parts

  Reals reals_;
  Arena arena_;
  Polynomials polynomials_;
  Names names_;
  Facts facts_;
  Prover prover_;
  Facts::Path path_ = 0;
  unsigned depth_ = 0;
  int64_t unknowns_ = 0;
};

/// A formula with other ones in the place of indices and symbols, and of elements of named values.
/// Choices are made anew on their branches. It takes no more stack for a deeper formula.
class Substitution {
public:
  using Elements = std::function<Expr(int64_t value, Sort sort, llvm::ArrayRef<Expr> indices)>;

  explicit Substitution(Formulas& formulas) : formulas_(formulas) {}

  void set(Expr leaf, Expr by) { by_[leaf.id()] = by; }
  void setElements(Elements elements) { elements_ = std::move(elements); }

  Expr operator()(Expr expr);

private:
  struct Frame;
  std::optional<Expr> known(Expr expr) const;
  bool advance(Frame& frame, std::vector<Frame>& frames);
  Expr finish(Frame& frame);

  Formulas& formulas_;
  llvm::DenseMap<uint32_t, Expr> by_;
  Elements elements_;
  llvm::DenseMap<std::pair<uint32_t, Facts::Path>, Expr> made_;
};

} // namespace kvopt::meaning
