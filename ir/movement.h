// Movement: how an operator that only moves data arranges an operand's elements in its results.
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

/// Kind of movement. The set is closed: every switch over it names all kinds, so that the compiler
/// reports each place that a new kind concerns.
enum class MovementKind {
  Same,        ///< copies the elements
  Convert,     ///< converts each element to the result's element type
  Permutation, ///< reorders the axes
  Reshape,     ///< gives the elements, in row-major order, another shape
  InsertAxes,  ///< inserts axes of extent 1
  RemoveAxes,  ///< removes axes of extent 1
  Broadcast,   ///< repeats axes of extent 1, or missing leading axes, to the result's extents
  Repeat,      ///< repeats the whole tensor along each axis a number of times
  Slice,       ///< takes a range of some axes
  Gather,      ///< takes the entries of an axis at indices given by another operand
  PointGather, ///< the same on several axes: the last axis of the indices has one entry for each
  Concat,      ///< joins several operands along an axis
};

/// A number that an operator reads from an attribute or from a list operand.
struct MovementNumber {
  Dim known;                   ///< unknown if it cannot be determined
  const Value* list = nullptr; ///< the operand that holds it; null for an attribute or a default
  unsigned entry = 0;
};

/// Range that a Slice keeps of an axis. If the extent of the axis is fixed, a known start is an
/// index within it (or the extent, for an empty range), and so is a known end of an ascending
/// range. Otherwise negative numbers count from the end.
struct MovementRange {
  MovementNumber start;
  MovementNumber end;
  MovementNumber step;
};

/// How a node produces one of its results. The kind and the operands are always known; the rest may
/// be unknown, because it depends on operands and extents.
struct Movement {
  MovementKind kind = MovementKind::Same;
  /// Index of the operand that is moved; for a Concat, the first one.
  unsigned data = 0;
  /// The axes concerned, without duplicates and nonnegative; nullopt if they are unknown.
  ///   Permutation  axis i of the result is axis (*axes)[i] of the data
  ///   InsertAxes   axes of the result, ascending
  /// RemoveAxes   axes of the data, ascending
  ///   Slice        axes of the data, one for each range
  ///   Gather       the axis of the data whose place the axes of the indices take
  ///   PointGather  the axes of the data that a point has positions on: the first ones
  ///   Concat       the axis that the operands follow one another along
  /// Other kinds have none.
  std::optional<llvm::SmallVector<unsigned, 4>> axes;
  /// For a Slice, one range for each of `axes`.
  llvm::SmallVector<MovementRange, 1> ranges;
  /// For a Repeat, the number of repetitions of each axis of the data; for a Broadcast, the extent
  /// of each axis of the result. Empty if there is not one number for each axis.
  llvm::SmallVector<MovementNumber, 4> counts;
  /// For a Gather or PointGather, the operand that holds the indices; negative indices count from
  /// the end.
  unsigned indices = 1;

  bool is(MovementKind other) const { return kind == other; }
  /// The single axis of the movement; nullopt if it has several axes, or none, or is unknown.
  std::optional<unsigned> axis() const {
    return axes && axes->size() == 1 ? std::optional<unsigned>(axes->front()) : std::nullopt;
  }
};

/// Completes `movement` for one result of a node. `movement` has the kind and the data operand of
/// the definition, and the node has that operand.
using MovementRule = void (*)(const Value& result, Movement& movement);

/// Part of an operator's definition that declares that it only moves data.
struct OpMovement {
  MovementKind kind = MovementKind::Same;
  MovementRule rule = nullptr; ///< null if the kind determines the movement
  unsigned data = 0;
};

/// Kind of movement of a node's results; nullopt for operators that do more than move data. Much
/// cheaper than `movementOf`.
std::optional<MovementKind> movementKind(const Node& node);
/// How the node moves data to `result`; nullopt if it does not, and for values without a producer.
std::optional<Movement> movementOf(const Value& result);
/// The operand whose elements the node moves (the first one of a Concat); null for other nodes.
Value* movedOperand(const Node& node);
/// Whether the user of this operand moves its elements. True for every joined operand of a Concat.
bool isMoved(const Use& use);

/// Operands of a node that moves data, with `data` in place of the moved one.
llvm::SmallVector<Value*, 4> operandsMoving(const Node& node, Value& data);

/// For movement rules: integers from an attribute or, if it is absent, from a list operand; nullopt
/// if one of them is unknown.
std::optional<llvm::SmallVector<int64_t, 4>> knownIntegersOf(const Node& node, unsigned operand,
                                                             llvm::StringRef attribute);
/// For movement rules: `axes` as nonnegative axes of a tensor of rank `rank`; nullopt if one of
/// them is out of range or occurs twice.
std::optional<llvm::SmallVector<unsigned, 4>> axesWithin(llvm::ArrayRef<int64_t> axes,
                                                         unsigned rank);

/// Whether each element of the result is an unchanged element of the data.
bool picksElements(MovementKind kind);
/// Whether the result has the data's elements, perhaps converted, in the same row-major order.
bool keepsOrder(MovementKind kind);

} // namespace kvopt::ir
