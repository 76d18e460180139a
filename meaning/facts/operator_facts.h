// OperatorFacts: answers of an operator's definition that hold for all ranks and extents.
#pragma once

#include "ir/element_type.h"

#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace kvopt::ir {
class Node;
} // namespace kvopt::ir

namespace kvopt::meaning {

/// A set of operands, a bit for each.
using OperandSet = uint64_t;

/// How an element of a result is made of elements of operands. Each kind includes those before it.
enum class Making : uint8_t {
  Moved,    ///< it is one of them, perhaps as a number of another type, or a constant
  Summed,   ///< a sum of multiples of elements at one place
  Finite,   ///< a number wherever they are numbers
  Computed, ///< any function of them
};

/// What is known of a node; by default, nothing.
struct NodeFacts {
  static constexpr OperandSet all = ~OperandSet(0);

  Making making = Making::Computed;
  /// Operands whose elements a result's element is made of. Elements that only select others, as
  /// indices or conditions, do not count.
  OperandSet made = all;
  /// Those by which it divides: results are `Finite` if none of their elements is 0.
  OperandSet divisors = 0;
  /// Operands whose elements determine extents of results.
  OperandSet shaping = all;
  /// Whether one formula gives an element at all sizes, and reads no window of elements around a
  /// place.
  bool isUniform = false;
  /// The element type of a result: its own, Undefined if it is not known, or that of an operand.
  struct Type {
    ir::ElementType own = ir::ElementType::Undefined;
    std::optional<unsigned> ofOperand;
  };
  llvm::SmallVector<Type, 2> types; ///< of all results; empty if nothing is known

  /// Whether results have elements of operands as they are.
  bool onlyMoves() const {
    return making == Making::Moved && made != 0 && !types.empty() && types[0].ofOperand;
  }
  bool makesOf(unsigned operand) const { return isIn(made, operand); }
  static bool isIn(OperandSet set, unsigned operand) {
    return operand >= 64 || (set >> operand & 1) != 0;
  }
};

/// Asks definitions, and remembers what they say: nodes with equal operators, attributes and lists
/// of integers have the same facts. Elements and extents of operands are unknown, except for lists
/// that a definition needs as numbers. Functions of a model that have an operator's name are not
/// looked at.
class OperatorFacts {
public:
  const NodeFacts& of(const ir::Node& node);

private:
  std::map<std::string, NodeFacts> known_;
};

} // namespace kvopt::meaning
