// What a formula is made of: integers, booleans and reals as shared nodes of an arena.
#pragma once

#include <compare>
#include <cstdint>

namespace kvopt::meaning {

/// A node of an `Arena`. Equal formulas of one arena are the same node, so comparing is comparing
/// two numbers.
class Expr {
public:
  /// No formula.
  constexpr Expr() = default;
  constexpr explicit Expr(uint32_t id) : id_(id) {}

  constexpr uint32_t id() const { return id_; }
  constexpr explicit operator bool() const { return id_ != 0; }
  friend constexpr auto operator<=>(Expr a, Expr b) = default;

private:
  uint32_t id_ = 0;
};

enum class Sort : uint8_t {
  Integer, ///< without bounds: an integer of a type wraps in a node of its own
  Boolean,
  Real,
};

/// The kinds of nodes. A comment gives operands, then what `Node::value` and `Node::detail` hold.
enum class Op : uint8_t {
  // Leaves.
  Integer, ///< value: the number
  Boolean, ///< value: 0 or 1
  Real,    ///< value: the bits of the double
  Symbol,  ///< value: number of the symbol; the size of something
  Index,   ///< (extent), value: number of the index; 0 <= index < extent
  Bound,   ///< value: its level; the index of the reduction of that level around it
  Unknown, ///< value: a number of its own; nothing is known of it

  // Integers.
  Product,    ///< (atoms…), at least two, ordered
  Polynomial, ///< (monomials…) with a coefficient each, ordered
  Wide,       ///< (a, b), detail 0: a + b, 1: a * b, whose terms are too many or too large
  Quotient,   ///< (a, b): a/b rounded down; 0 for b = 0
  Remainder,  ///< (a, b): a - b * Quotient (a, b) for b other than 0; 0 for b = 0
  Minimum,    ///< (a, b…), ordered
  Maximum,    ///< (a, b…), ordered
  Truncated,  ///< (real): rounded towards 0
  Wrapped,    ///< (a), detail: ir::ElementType; the integer of that type that is a modulo 2^bits

  // Booleans.
  NonNegative, ///< (integer)
  Zero,        ///< (integer)
  Compared,    ///< (real, real), detail: Comparison
  Not,         ///< (boolean)
  And,         ///< (booleans…), at least two, ordered
  Or,          ///< (booleans…), at least two, ordered

  // Reals.
  FromInteger, ///< (integer)
  Function,    ///< (reals…), detail: Function

  // Any sort.
  Element, ///< (indices…), value: number of the named value
  Select,  ///< (condition, a, b)
  Reduce,  ///< (extent, body), detail: Reduction, value: level of the bound index
  Last, ///< (extent, body, condition, otherwise), value: level; the body at the last index with the
        ///< condition
};

enum class Comparison : uint8_t { Less, LessOrEqual, Equal };

enum class Reduction : uint8_t { Sum, Product, Minimum, Maximum, Any, All };

/// Functions of reals. Sums, products and quotients are functions, too: they round.
enum class Function : uint8_t {
  Add,
  Multiply,
  Divide,
  Minimum,
  Maximum,
  Power,
  Remainder, ///< C's fmod
  Absolute,
  Sign,
  Floor,
  Ceiling,
  Round, ///< to the nearest integer, ties to even
  SquareRoot,
  Exponential,
  Logarithm,
  Sine,
  Cosine,
  Tangent,
  ArcSine,
  ArcCosine,
  ArcTangent,
  HyperbolicSine,
  HyperbolicCosine,
  HyperbolicTangent,
  InverseHyperbolicSine,
  InverseHyperbolicCosine,
  InverseHyperbolicTangent,
  ErrorFunction,
};

/// One node. Its operands, and the coefficients of a polynomial, are stored apart, by the arena.
struct Node {
  Op op = Op::Integer;
  Sort sort = Sort::Integer;
  uint16_t detail = 0;
  uint32_t count = 0;     ///< number of operands
  uint32_t variables = 0; ///< number of the set of indices that it reads
  uint32_t hash = 0;
  uint32_t level = 0; ///< of the highest index that a reduction within it binds, 0 without any
  int64_t value = 0;
  const Expr* operands = nullptr; ///< coefficients follow those of a polynomial
};
static_assert(sizeof(Node) <= 40);

} // namespace kvopt::meaning
