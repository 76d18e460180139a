// How each kind of movement maps the indices of a result to those of the data.
#include "passes/analysis/movement/index_map.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr int64_t maxGatherIndices = 4096;

using Integers = llvm::SmallVector<int64_t, 8>;

std::optional<Integers> fixedIntegers(const Value* value) {
  if (!value)
    return std::nullopt;
  if (const TensorData* constant = value->constant()) {
    auto elements = integerValues(*constant, maxGatherIndices);
    return elements ? std::optional<Integers>(Integers(elements->begin(), elements->end()))
                    : std::nullopt;
  }
  auto known = value->knownIntegers();
  if (!known || known->size() > maxGatherIndices)
    return std::nullopt;
  Integers list;
  for (const Dim& element : *known) {
    std::optional<int64_t> number = element.value();
    if (!number)
      return std::nullopt;
    list.push_back(*number);
  }
  return list;
}

/// entry[i] = first + step * ((i / run) % period).
struct Table {
  int64_t first, step, run, period;
};

std::optional<Table> tableOf(llvm::ArrayRef<int64_t> entries) {
  if (entries.empty())
    return std::nullopt;
  size_t run = 1;
  while (run < entries.size() && entries[run] == entries[0])
    ++run;
  if (entries.size() % run != 0)
    return std::nullopt;
  size_t count = entries.size() / run;
  int64_t step = 0;
  if (count > 1 && __builtin_sub_overflow(entries[run], entries[0], &step))
    return std::nullopt;
  if (count > 1 && step <= 0)
    return std::nullopt;
  size_t period = 1;
  while (period < count && entries[period * run] > entries[(period - 1) * run])
    ++period;
  if (count % period != 0)
    return std::nullopt;
  // The entries ascend within a period, so no product below exceeds the last of them.
  for (size_t i = 0; i < entries.size(); ++i) {
    int64_t offset = 0, expected = 0;
    if (__builtin_mul_overflow(step, static_cast<int64_t>((i / run) % period), &offset) ||
        __builtin_add_overflow(entries[0], offset, &expected) || entries[i] != expected)
      return std::nullopt;
  }
  return Table{entries[0], step, static_cast<int64_t>(run), static_cast<int64_t>(period)};
}

/// The entries of a Gather along an axis of that extent, counted from its beginning.
std::optional<Integers> entriesOf(const Value* indices, const Dim& extent) {
  std::optional<Integers> entries = fixedIntegers(indices);
  if (!entries)
    return std::nullopt;
  for (int64_t& entry : *entries)
    if (entry < 0) {
      std::optional<int64_t> whole = extent.value();
      if (!whole || entry < -*whole)
        return std::nullopt;
      entry += *whole;
    }
  return entries;
}

/// The list that a column of indices holds in its order; null where the value is not made of one.
const Value* listOfColumn(const Value& column) {
  const Node* node = column.producer();
  if (!node)
    return nullptr;
  const std::optional<MovementKind> kind = movementKind(*node);
  bool keepsOrder = kind == MovementKind::InsertAxes || kind == MovementKind::Reshape ||
                    kind == MovementKind::Permutation;
  return keepsOrder ? movedOperand(*node) : nullptr;
}

/// Whether every axis of the result is an axis of the data, whole, or of extent one, so that axes
/// are equal where their extents are not known.
bool keepsWholeAxes(MovementKind kind) {
  switch (kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
  case MovementKind::Permutation:
  case MovementKind::Reshape: // says so itself
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
    return true;
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return false;
  }
  return false;
}

} // namespace

bool IndexMap::throughPermutation(const Movement& movement) {
  if (!movement.axes || movement.axes->size() != coordinates.size())
    return false;
  Coordinates before(coordinates.size());
  for (size_t i = 0; i < coordinates.size(); ++i)
    before[(*movement.axes)[i]] = coordinates[i];
  coordinates = std::move(before);
  return true;
}

bool IndexMap::throughInserted(const Movement& movement, llvm::ArrayRef<Dim> shape) {
  if (!movement.axes)
    return throughReshape(shape);
  Coordinates before;
  for (unsigned axis = 0; axis < coordinates.size(); ++axis)
    if (!llvm::is_contained(*movement.axes, axis))
      before.push_back(coordinates[axis]);
  coordinates = std::move(before);
  return coordinates.size() == shape.size();
}

bool IndexMap::throughRemoved(const Movement& movement, llvm::ArrayRef<Dim> shape) {
  if (!movement.axes)
    return throughReshape(shape);
  if (coordinates.size() + movement.axes->size() != shape.size())
    return false;
  for (unsigned axis : *movement.axes)
    coordinates.insert(coordinates.begin() + axis, Coordinate());
  return true;
}

bool IndexMap::throughBroadcast(llvm::ArrayRef<Dim> shape) {
  if (shape.size() > coordinates.size())
    return false;
  size_t added = coordinates.size() - shape.size();
  const Dim one = Dim::fixed(1);
  Coordinates before;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis].isKnownEqual(one))
      before.emplace_back();
    else if (shape[axis].isKnownEqual(sourceShape[axis + added]) ||
             shape[axis].isKnownDifferent(one))
      before.push_back(coordinates[axis + added]);
    else
      return false;
  }
  coordinates = std::move(before);
  return true;
}

bool IndexMap::throughRepeat(const Movement& movement, llvm::ArrayRef<Dim> shape) {
  if (shape.size() != coordinates.size() || movement.counts.size() != shape.size())
    return false;
  for (unsigned axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis].value() == 1)
      coordinates[axis] = Coordinate();
    else if (movement.counts[axis].known.value() != 1 && !reduceModulo(axis, shape[axis]))
      return false;
  }
  return true;
}

bool IndexMap::throughConcat(const Movement& movement, const Node& node,
                             llvm::ArrayRef<Dim> shape) {
  auto parts = node.operands().drop_front(movement.data);
  for (const Use& use : parts)
    if (use.value() != parts.front().value())
      return false;
  std::optional<unsigned> axis = movement.axis();
  if (!axis || coordinates.size() != shape.size())
    return false;
  return parts.size() == 1 || reduceModulo(*axis, shape[*axis]);
}

bool IndexMap::throughSlice(const Movement& movement, llvm::ArrayRef<Dim> shape) {
  if (!movement.axes || coordinates.size() != shape.size())
    return false;
  for (size_t i = 0; i < movement.ranges.size(); ++i) {
    const MovementRange& range = movement.ranges[i];
    const unsigned axis = (*movement.axes)[i];
    std::optional<int64_t> step = range.step.known.value();
    if (!step || *step == 0)
      return false;
    if (*step < 0) {
      if (!throughReversed(axis, range, shape[axis]))
        return false;
      continue;
    }
    // A start behind the end leaves nothing; one before the beginning would be moved to it.
    Dim start = range.start.known;
    if (start.value() && *start.value() < 0)
      start = start + shape[axis];
    if (!start.isKnownNonNegative())
      return false;
    Coordinate moved = scaled(coordinates[axis], Dim::fixed(*step));
    moved.offset = moved.offset + start;
    coordinates[axis] = std::move(moved);
  }
  return true;
}

bool IndexMap::throughGather(const Movement& movement, const Node& node,
                             llvm::ArrayRef<Dim> shape) {
  const Value* indices = node.operand(movement.indices);
  if (!movement.axis() || !indices || !indices->type().hasRank() || indices->type().rank() > 1 ||
      coordinates.size() != shape.size() - 1 + indices->type().rank())
    return false;
  const unsigned axis = *movement.axis();
  std::optional<Integers> entries = entriesOf(indices, shape[axis]);
  if (!entries)
    return false;
  if (indices->type().rank() == 0) {
    if (entries->size() != 1)
      return false;
    Coordinate chosen;
    chosen.offset = Dim::fixed(entries->front());
    coordinates.insert(coordinates.begin() + axis, std::move(chosen));
    return true;
  }
  return throughEntries(axis, *entries);
}

bool IndexMap::throughPoints(const Movement& movement, const Node& node,
                             llvm::ArrayRef<Dim> shape) {
  const Value* indices = node.operand(movement.indices);
  if (!movement.axis() || indices->type().rank() != 2 || coordinates.size() != shape.size())
    return false;
  const unsigned axis = *movement.axis();
  if (const Value* list = listOfColumn(*indices))
    indices = list;
  std::optional<Integers> entries = entriesOf(indices, shape[axis]);
  return entries && throughEntries(axis, *entries);
}

bool IndexMap::throughEntries(unsigned axis, llvm::ArrayRef<int64_t> entries) {
  if (std::optional<int64_t> index = fixedIndex(coordinates[axis])) {
    if (*index < 0 || *index >= static_cast<int64_t>(entries.size()))
      return false;
    coordinates[axis] = Coordinate();
    coordinates[axis].offset = Dim::fixed(entries[static_cast<size_t>(*index)]);
    return true;
  }
  std::optional<Table> table = tableOf(entries);
  if (!table)
    return false;
  if (!reduceQuotient(axis, Dim::fixed(table->run)))
    return false;
  if (!reduceModulo(axis, Dim::fixed(table->period)))
    return false;
  Coordinate moved = scaled(coordinates[axis], Dim::fixed(table->step));
  moved.offset = moved.offset + Dim::fixed(table->first);
  coordinates[axis] = std::move(moved);
  return true;
}

bool IndexMap::throughAny(const Movement& movement, const Value& result) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(movement.data)->type();
  llvm::ArrayRef<Dim> shape = data.shape();
  keepsExtents &= keepsWholeAxes(movement.kind);
  switch (movement.kind) {
  case MovementKind::Same:
    return true;
  case MovementKind::Convert:
    return data.elementType() != ElementType::Undefined &&
           data.elementType() == result.type().elementType();
  case MovementKind::Permutation:
    return throughPermutation(movement);
  case MovementKind::Reshape:
    return throughReshape(shape);
  case MovementKind::InsertAxes:
    return throughInserted(movement, shape);
  case MovementKind::RemoveAxes:
    return throughRemoved(movement, shape);
  case MovementKind::Broadcast:
    return throughBroadcast(shape);
  case MovementKind::Repeat:
    return throughRepeat(movement, shape);
  case MovementKind::Slice:
    return throughSlice(movement, shape);
  case MovementKind::Gather:
    return throughGather(movement, node, shape);
  case MovementKind::PointGather:
    return throughPoints(movement, node, shape);
  case MovementKind::Concat:
    return throughConcat(movement, node, shape);
  }
  return false;
}

bool IndexMap::through(const Node& node, unsigned result) {
  std::optional<Movement> movement = movementOf(node.result(result));
  const Value* operand = movement ? node.operand(movement->data) : nullptr;
  if (!operand || !operand->type().hasRank() ||
      sourceShape.size() != node.result(result).type().rank())
    return false;
  IndexMap before = *this;
  if (!throughAny(*movement, node.result(result))) {
    *this = std::move(before);
    return false;
  }
  setSource(operand->type().shape());
  assert(coordinates.size() == sourceShape.size());
  return true;
}

} // namespace kvopt::analysis
