// How each operator that moves data maps the indices of its result to those of its operand.
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

/// The axes of Squeeze or Unsqueeze within `rank`, each once.
std::optional<llvm::SmallVector<bool, 8>> markedAxes(const Node& node, unsigned rank) {
  std::optional<Integers> list;
  if (auto attribute = node.intsAttr("axes"))
    list = Integers(attribute->begin(), attribute->end());
  else
    list = fixedIntegers(node.operand(1));
  if (!list)
    return std::nullopt;
  llvm::SmallVector<bool, 8> marked(rank, false);
  for (int64_t axis : *list) {
    std::optional<unsigned> normalized = normalizedAxis(axis, rank);
    if (!normalized || marked[*normalized])
      return std::nullopt;
    marked[*normalized] = true;
  }
  return marked;
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

} // namespace

bool isMovement(const Node& node) {
  static constexpr llvm::StringLiteral names[] = {
      "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Flatten",  "Expand", "Tile",
      "Slice",     "Gather",  "Concat",    "Split",   "Identity", "Cast",   "GatherND"};
  return node.op().isOnnx() && llvm::is_contained(names, node.op().type());
}

bool IndexMap::throughTranspose(const Node& node) {
  unsigned rank = static_cast<unsigned>(coordinates.size());
  Coordinates before(rank);
  auto perm = node.intsAttr("perm");
  if (perm && perm->size() != rank)
    return false;
  llvm::SmallVector<bool, 8> seen(rank, false);
  for (unsigned i = 0; i < rank; ++i) {
    std::optional<unsigned> axis =
        perm ? normalizedAxis((*perm)[i], rank) : std::optional<unsigned>(rank - 1 - i);
    if (!axis || seen[*axis])
      return false;
    seen[*axis] = true;
    before[*axis] = coordinates[i];
  }
  coordinates = std::move(before);
  return true;
}

bool IndexMap::throughUnsqueeze(const Node& node, llvm::ArrayRef<Dim> shape) {
  auto marked = markedAxes(node, static_cast<unsigned>(coordinates.size()));
  if (!marked)
    return throughReshape(shape);
  Coordinates before;
  for (unsigned axis = 0; axis < coordinates.size(); ++axis)
    if (!(*marked)[axis])
      before.push_back(coordinates[axis]);
  coordinates = std::move(before);
  return coordinates.size() == shape.size();
}

bool IndexMap::throughSqueeze(const Node& node, llvm::ArrayRef<Dim> shape) {
  auto marked = markedAxes(node, static_cast<unsigned>(shape.size()));
  if (!marked)
    return throughReshape(shape);
  Coordinates before;
  unsigned next = 0;
  for (bool isRemoved : *marked) {
    if (!isRemoved && next == coordinates.size())
      return false;
    before.push_back(isRemoved ? Coordinate() : coordinates[next++]);
  }
  coordinates = std::move(before);
  return next == sourceShape.size();
}

bool IndexMap::throughExpand(llvm::ArrayRef<Dim> shape) {
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

bool IndexMap::throughTile(const Node& node, llvm::ArrayRef<Dim> shape) {
  auto repeats = node.operand(1) ? node.operand(1)->knownIntegers() : std::nullopt;
  if (shape.size() != coordinates.size() || (repeats && repeats->size() != shape.size()))
    return false;
  for (unsigned axis = 0; axis < shape.size(); ++axis) {
    bool isOnce = repeats && (*repeats)[axis].value() == 1;
    if (shape[axis].value() == 1)
      coordinates[axis] = Coordinate();
    else if (!isOnce && !reduceModulo(axis, shape[axis]))
      return false;
  }
  return true;
}

bool IndexMap::throughConcat(const Node& node, llvm::ArrayRef<Dim> shape) {
  for (const Use& use : node.operands())
    if (use.value() != node.operand(0))
      return false;
  auto rank = static_cast<unsigned>(shape.size());
  std::optional<unsigned> axis = normalizedAxis(node.intAttr("axis", rank), rank);
  if (!axis || coordinates.size() != rank)
    return false;
  return node.operands().size() == 1 || reduceModulo(*axis, shape[*axis]);
}

bool IndexMap::throughSlice(const Node& node, llvm::ArrayRef<Dim> shape) {
  auto rank = static_cast<unsigned>(shape.size());
  auto dims = [&](const char* attribute, unsigned operand) {
    std::optional<llvm::SmallVector<Dim, 4>> list;
    if (auto written = node.intsAttr(attribute)) {
      list.emplace();
      for (int64_t number : *written)
        list->push_back(Dim::fixed(number));
    } else if (node.operand(operand)) {
      list = node.operand(operand)->knownIntegers();
    }
    return list;
  };
  bool hasAxes = node.intsAttr("axes") || node.operand(3);
  auto starts = dims("starts", 1);
  auto axisList = dims("axes", 3);
  auto steps = dims("steps", 4);
  if (!starts || hasAxes != axisList.has_value() || (node.operand(4) && !steps) ||
      coordinates.size() != rank || (axisList && axisList->size() != starts->size()) ||
      (steps && steps->size() != starts->size()) || (!axisList && starts->size() > rank))
    return false;
  llvm::SmallVector<bool, 8> seen(rank, false);
  for (size_t i = 0; i < starts->size(); ++i) {
    std::optional<int64_t> number =
        axisList ? (*axisList)[i].value() : std::optional<int64_t>(static_cast<int64_t>(i));
    std::optional<int64_t> step = steps ? (*steps)[i].value() : std::optional<int64_t>(1);
    std::optional<unsigned> normalized = normalizedAxis(number.value_or(rank), rank);
    unsigned axis = normalized.value_or(0);
    if (!normalized || seen[axis] || !step || *step == 0)
      return false;
    seen[axis] = true;
    if (*step < 0) {
      if (!throughReversed(axis, (*starts)[i], *step, shape[axis]))
        return false;
      continue;
    }
    // A start behind the end leaves nothing; one before the beginning would be moved to it.
    Dim start = (*starts)[i];
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

bool IndexMap::throughGather(const Node& node, llvm::ArrayRef<Dim> shape) {
  auto rank = static_cast<unsigned>(shape.size());
  const Value* indices = node.operand(1);
  std::optional<unsigned> normalized = normalizedAxis(node.intAttr("axis", 0), rank);
  if (!normalized || !indices || !indices->type().hasRank() || indices->type().rank() > 1 ||
      coordinates.size() != rank - 1 + indices->type().rank())
    return false;
  const unsigned axis = *normalized;
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

bool IndexMap::throughGatherND(const Node& node, llvm::ArrayRef<Dim> shape) {
  const Value* indices = node.operand(1);
  if (node.intAttr("batch_dims", 0) != 0 || shape.empty() || !indices ||
      !indices->type().hasRank() || indices->type().rank() != 2 ||
      indices->type().dim(1).value() != 1 || coordinates.size() != shape.size())
    return false;
  // A column is made of a list by Unsqueeze, Reshape or Transpose, which keep the order.
  const Node* column = indices->producer();
  if (column && (column->is("Unsqueeze") || column->is("Reshape") || column->is("Transpose")))
    indices = column->operand(0);
  std::optional<Integers> entries = entriesOf(indices, shape[0]);
  return entries && throughEntries(0, *entries);
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

bool IndexMap::throughSplit(const Node& node, unsigned result, llvm::ArrayRef<Dim> shape) {
  auto rank = static_cast<unsigned>(shape.size());
  std::optional<unsigned> normalized = normalizedAxis(node.intAttr("axis", 0), rank);
  if (!normalized || coordinates.size() != rank)
    return false;
  const unsigned axis = *normalized;
  Dim start = Dim::fixed(0);
  for (unsigned part = 0; part < result; ++part)
    start = start + node.result(part).type().dim(axis);
  if (!start.isKnownNonNegative())
    return false;
  coordinates[axis].offset = coordinates[axis].offset + start;
  return true;
}

bool IndexMap::throughAny(const Node& node, unsigned result) {
  llvm::StringRef op = node.op().type();
  const TensorType& type = node.operand(0)->type();
  llvm::ArrayRef<Dim> shape = type.shape();
  if (op == "Reshape" || op == "Flatten")
    return throughReshape(shape);
  if (op == "Identity")
    return true;
  if (op == "Cast")
    return type.elementType() != ElementType::Undefined &&
           node.intAttr("to", 0) == static_cast<int64_t>(type.elementType());
  if (op == "Transpose")
    return throughTranspose(node);
  if (op == "Unsqueeze")
    return throughUnsqueeze(node, shape);
  if (op == "Squeeze")
    return throughSqueeze(node, shape);
  keepsExtents = false;
  if (op == "Expand")
    return throughExpand(shape);
  if (op == "Tile")
    return throughTile(node, shape);
  if (op == "Concat")
    return throughConcat(node, shape);
  if (op == "Slice")
    return throughSlice(node, shape);
  if (op == "Gather")
    return throughGather(node, shape);
  if (op == "GatherND")
    return throughGatherND(node, shape);
  return op == "Split" && throughSplit(node, result, shape);
}

bool IndexMap::through(const Node& node, unsigned result) {
  const Value* operand = node.operand(0);
  if (!isMovement(node) || !operand || !operand->type().hasRank() ||
      sourceShape.size() != node.result(result).type().rank())
    return false;
  // Within a function's body an attribute may be known at the call only.
  if (llvm::any_of(node.attributes(),
                   [](const NamedAttribute& attribute) { return attribute.value.isReference(); }))
    return false;
  IndexMap before = *this;
  if (!throughAny(node, result)) {
    *this = std::move(before);
    return false;
  }
  setSource(operand->type().shape());
  assert(coordinates.size() == sourceShape.size());
  return true;
}

} // namespace kvopt::analysis
