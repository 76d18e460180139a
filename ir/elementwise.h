// Elementwise operators: each element of the result is a function of those at the same place of the
// operands, which broadcast to the result's shape.
#pragma once

#include <optional>

namespace kvopt::ir {

class Node;

/// What an elementwise operator computes at each place.
enum class ElementFunction {
  Sum,        ///< a sum, a difference or a mean: Add, Sub, Neg
  Product,    ///< Mul
  Quotient,   ///< a quotient or the rest of one: Div, Mod
  Bound,      ///< one of several numbers, chosen by their order: Min, Max, Clip
  Rounding,   ///< an integer near a number: Floor, Ceil, Round
  Nonlinear,  ///< another function of numbers: Exp, Sqrt, Pow, Sigmoid
  Comparison, ///< whether two numbers are equal, or in some order: Equal, Less
  Test,       ///< whether a number is of some kind: IsNaN, IsInf
  Logic,      ///< a truth that follows from others: And, Not
  Bits,       ///< a number made of the bits of others: BitwiseAnd, BitCast
  Choice,     ///< one of two elements, chosen by a truth: Where
};

/// What the node computes from the elements at one place. The definition of its operator says so;
/// nullopt for operators that are not elementwise, for those that only move elements, and where the
/// node has operands that its definition does not know.
std::optional<ElementFunction> elementFunction(const Node& node);

/// Whether each element of the node's one result is computed from the elements at the same place of
/// its operands, or is that element itself, perhaps converted. All operands broadcast to the
/// result's shape. CastLike is not elementwise in this sense: its second operand gives a type only.
bool isElementwise(const Node& node);

} // namespace kvopt::ir
