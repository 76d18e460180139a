// Movement: how an operator that only moves data arranges the elements of an operand in its
// results.
#pragma once

#include "ir/dims/dim.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <optional>

namespace kvopt::ir {

class Node;
class Use;
class Value;

/// What is done to the data. The set is closed: a switch over it names every kind, so that the
/// compiler points at the places that a new kind concerns.
enum class MovementKind {
  Same,        ///< the elements as they are
  Convert,     ///< each element converted to the result's element type
  Permutation, ///< the axes in another order
  Reshape,     ///< the elements in row-major order under another shape
  InsertAxes,  ///< axes of extent one more
  RemoveAxes,  ///< axes of extent one fewer
  Broadcast,   ///< axes of extent one, or missing in front, repeated to the result's extents
  Repeat,      ///< the whole of each axis repeated a number of times
  Slice,       ///< a range of some axes
  Gather,      ///< the entries of an axis at positions that another operand holds
  PointGather, ///< the same on several axes: the last axis of the positions holds one for each
  Concat,      ///< several operands after one another along an axis
};

/// A number that an operator reads from an attribute or from a list operand.
struct MovementNumber {
  Dim known;                   ///< unknown where nothing says it
  const Value* list = nullptr; ///< the operand that holds it; null for an attribute and a default
  unsigned entry = 0;
};

/// What a Slice keeps of an axis. Where the axis has a fixed extent, a known start is an index in
/// it (or the extent, where nothing is kept) and so is a known end of a range that ascends.
/// Elsewhere negative numbers count from the end.
struct MovementRange {
  MovementNumber start;
  MovementNumber end;
  MovementNumber step;
};

/// How one result of a node is made. The kind and the operands are always known. What else there is
/// may not be: it depends on operands and on extents.
struct Movement {
  MovementKind kind = MovementKind::Same;
  /// The operand that is moved; of a Concat, the first one.
  unsigned data = 0;
  /// The axes concerned, each once and counted from the first; nullopt where they are not known.
  ///   Permutation  axis i of the result is axis (*axes)[i] of the data
  ///   InsertAxes   axes of the result, ascending
  ///   RemoveAxes   axes of the data, ascending
  ///   Slice        axes of the data, one for each range
  ///   Gather       the axis of the data whose place the axes of the indices take
  ///   PointGather  the axes of the data that a point has positions on: the first ones
  ///   Concat       the axis that the operands follow one another along
  /// Other kinds have none.
  std::optional<llvm::SmallVector<unsigned, 4>> axes;
  /// Of a Slice, one for each of `axes`.
  llvm::SmallVector<MovementRange, 1> ranges;
  /// Of a Repeat, how often each axis of the data is repeated; of a Broadcast, the extent that each
  /// axis of the result is broadcast to. Empty where there is not one for each axis.
  llvm::SmallVector<MovementNumber, 4> counts;
  /// Of a Gather or PointGather, the operand that holds the positions; negative ones count from the
  /// end.
  unsigned indices = 1;

  bool is(MovementKind other) const { return kind == other; }
  /// The axis of a movement along one axis that is known; nullopt otherwise.
  std::optional<unsigned> axis() const {
    return axes && axes->size() == 1 ? std::optional<unsigned>(axes->front()) : std::nullopt;
  }
};

/// Sets what is known of `movement`, which has the definition's kind and data operand, for one
/// result of a node that has that operand.
using MovementRule = void (*)(const Value& result, Movement& movement);

/// The part of an operator's definition that says that it only moves data.
struct OpMovement {
  MovementKind kind = MovementKind::Same;
  MovementRule rule = nullptr; ///< null for a kind that says it all
  unsigned data = 0;
};

/// The kind of movement of a node's results; nullopt for operators that do not only move data. Much
/// cheaper than the movement.
std::optional<MovementKind> movementKind(const Node& node);
/// How the node moves data to `result`; nullopt if it does not, and for values that no node makes.
std::optional<Movement> movementOf(const Value& result);
/// The operand whose elements the node moves (the first one of a Concat); null for other nodes.
Value* movedOperand(const Node& node);
/// Whether the user of this operand moves its elements; all operands of a Concat from the first on.
bool isMoved(const Use& use);

/// The operands of a node that moves data, with `data` in the place of the moved one.
llvm::SmallVector<Value*, 4> operandsMoving(const Node& node, Value& data);

/// For movement rules: the integers that a node is given in an attribute or, where that is not
/// written, in a list operand; nullopt where one of them is not known.
std::optional<llvm::SmallVector<int64_t, 4>> knownIntegersOf(const Node& node, unsigned operand,
                                                             llvm::StringRef attribute);
/// For movement rules: `axes` counted from the first of `rank`; nullopt where one of them is
/// outside or occurs twice.
std::optional<llvm::SmallVector<unsigned, 4>> axesWithin(llvm::ArrayRef<int64_t> axes,
                                                         unsigned rank);

/// Whether each element of the result is one of the data's, unchanged.
bool picksElements(MovementKind kind);
/// Whether the result has the data's elements, perhaps converted, in the same row-major order.
bool keepsOrder(MovementKind kind);

} // namespace kvopt::ir
