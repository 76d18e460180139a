// Elementwise operators: each element of the result depends only on the operands' elements at the
// same position, after broadcasting.
#pragma once

#include <optional>

namespace kvopt::ir {

class Node;

/// Function that an elementwise operator computes at each position.
enum class ElementFunction {
  Sum,        ///< a sum, a difference or a mean: Add, Sub, Neg
  Product,    ///< Mul
  Quotient,   ///< a quotient or remainder: Div, Mod
  Bound,      ///< one of several numbers, selected by comparison: Min, Max, Clip
  Rounding,   ///< an integer near a number: Floor, Ceil, Round
  Nonlinear,  ///< another function of numbers: Exp, Sqrt, Pow, Sigmoid
  Comparison, ///< whether two numbers are equal, or in some order: Equal, Less
  Test,       ///< whether a number has a property: IsNaN, IsInf
  Logic,      ///< a function of booleans: And, Not
  Bits,       ///< a number made from the bits of others: BitwiseAnd, BitCast
  Choice,     ///< one of two elements, selected by a boolean: Where
};

/// Function that the node computes at each position, according to its operator's definition.
/// nullopt for operators that are not elementwise, for those that only move elements, and for nodes
/// with operands that the definition does not declare.
std::optional<ElementFunction> elementFunction(const Node& node);

/// Whether each element of the node's single result is computed from the operands' elements at the
/// same position, or is such an element, perhaps converted. All operands broadcast to the result's
/// shape. CastLike is not elementwise in this sense: its second operand only gives a type.
bool isElementwise(const Node& node);

} // namespace kvopt::ir
