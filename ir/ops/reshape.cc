// Operators that change the shape of a tensor: Reshape, Flatten, Squeeze, Unsqueeze, Transpose,
// Expand, Tile.
#include "ir/ops/dim_combination.h"
#include "ir/shapes/shape_rules.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {
namespace {

bool isConstant(const Dim& dim, int64_t value) { return dim.value() == value; }

// Number of elements of a list operand.
std::optional<size_t> listLength(ShapeContext& context, unsigned operand) {
  const TensorType& type = context.type(operand);
  if (!type.hasRank() || type.rank() != 1)
    return std::nullopt;
  std::optional<int64_t> length = type.shape()[0].value();
  if (!length || *length < 0 || *length > maxTrackedIntegers)
    return std::nullopt;
  return static_cast<size_t>(*length);
}

// Remaining extents of a Reshape, after 0 has copied extents and all others but -1 are set.
struct ReshapePlan {
  Shape shape;
  std::optional<size_t> inferred;      // axis of -1
  llvm::SmallVector<Dim, 4> remaining; // operand extents that were not copied by 0
  llvm::SmallVector<Dim, 4> placed;    // result extents that were not copied by 0, without the -1
  bool onlyConstants = true;
};

llvm::Expected<ReshapePlan> planReshape(ShapeContext& context, const Integers& target) {
  const TensorType& type = context.type(0);
  bool zeroCopies = context.node().intAttr("allowzero", 0) == 0;
  ReshapePlan plan;
  llvm::SmallVector<bool, 8> copied(type.hasRank() ? type.rank() : 0, false);
  for (size_t i = 0; i < target.size(); ++i) {
    if (isConstant(target[i], -1)) {
      if (plan.inferred)
        return context.error("the target shape has two extents of -1");
      plan.inferred = i;
      plan.shape.push_back(Dim::unknown());
      continue;
    }
    if (target[i].value() && *target[i].value() < 0)
      return context.error(formatted("the target shape has extent {}", target[i].str()));
    if (zeroCopies && isConstant(target[i], 0)) {
      if (type.hasRank() && i >= type.rank())
        return context.error(formatted("extent {} of the target shape copies an axis that {} "
                                       "does not have",
                                       i, type.str()));
      plan.shape.push_back(type.dim(static_cast<int64_t>(i)));
      if (type.hasRank())
        copied[i] = true;
      continue;
    }
    plan.onlyConstants &= target[i].value().has_value();
    plan.shape.push_back(asExtent(target[i]));
    plan.placed.push_back(plan.shape.back());
  }
  for (size_t i = 0; i < copied.size(); ++i)
    if (!copied[i])
      plan.remaining.push_back(type.shape()[i]);
  return plan;
}

/// Elements of a OneHot along its last axis, row by row. Exporters of torch.repeat_interleave
/// compute the counts of a Tile from it.
std::optional<Integers> oneHotElements(const Value* value) {
  const Node* node = value ? value->producer() : nullptr;
  if (!node || !node->is("OneHot") || node->intAttr("axis", -1) != -1 || !node->operand(0) ||
      !node->operand(1) || !node->operand(2))
    return std::nullopt;
  const auto indices = node->operand(0)->knownIntegers();
  const auto depth = node->operand(1)->knownIntegers();
  const auto values = node->operand(2)->knownIntegers();
  const int64_t width = depth && depth->size() == 1 ? depth->front().value().value_or(0) : 0;
  if (!indices || !values || values->size() != 2 || width < 1 || width > maxTrackedIntegers ||
      static_cast<int64_t>(indices->size()) > maxTrackedIntegers / width)
    return std::nullopt;
  Integers elements;
  for (const Dim& index : *indices) {
    if (!index.value())
      return std::nullopt;
    const int64_t hot = *index.value() < 0 ? *index.value() + width : *index.value();
    for (int64_t place = 0; place < width; ++place)
      elements.push_back((*values)[place == hot ? 1 : 0]);
  }
  return elements;
}

// A symbolic extent is used as it is. (With value 0, a Reshape without `allowzero` would copy an
// axis instead; then the element counts agree only if the whole tensor is empty.)
llvm::Error inferReshape(ShapeContext& context) {
  const TensorType& type = context.type(0);
  std::optional<Integers> target = context.integers(1);
  if (!target) {
    std::optional<size_t> rank = listLength(context, 1);
    context.setResult(0, rank ? TensorType(context.element(0), unknownShape(*rank))
                              : TensorType(context.element(0)));
    return llvm::Error::success();
  }
  llvm::Expected<ReshapePlan> plan = planReshape(context, *target);
  if (!plan)
    return plan.takeError();
  if (type.hasRank()) {
    Dim count = productOf(plan->remaining);
    Dim divisor = productOf(plan->placed);
    if (plan->inferred) {
      if (std::optional<Dim> extent = count.dividedBy(divisor))
        plan->shape[*plan->inferred] = asExtent(*extent);
      else if (count.value() && divisor.value() && *divisor.value() != 0)
        return context.error(
            formatted("{} elements do not divide into rows of {}", count.str(), divisor.str()));
    } else if (plan->onlyConstants && plan->remaining.size() == type.rank()) {
      if (llvm::Error error = requireEqual(context, count, divisor, "element counts"))
        return error;
    }
  }
  context.setResult(0, TensorType(context.element(0), std::move(plan->shape)));
  std::optional<Integers> elements = context.integers(0);
  context.setIntegers(0,
                      elements ? std::move(elements) : oneHotElements(context.node().operand(0)));
  return llvm::Error::success();
}

llvm::Error inferFlatten(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (!type.hasRank()) {
    context.setResult(0, TensorType(context.element(0), unknownShape(2)));
    return llvm::Error::success();
  }
  int64_t rank = type.rank();
  int64_t axis = context.node().intAttr("axis", 1);
  if (axis < -rank || axis > rank)
    return context.error(formatted("axis {} is outside rank {}", axis, rank));
  size_t split = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  context.setResult(
      0, TensorType(context.element(0), Shape{productOf(type.shape().take_front(split)),
                                              productOf(type.shape().drop_front(split))}));
  return llvm::Error::success();
}

// Axes of Squeeze and Unsqueeze: an attribute before version 13, an operand since then.
std::optional<llvm::SmallVector<int64_t, 8>> axesOf(ShapeContext& context) {
  if (std::optional<llvm::ArrayRef<int64_t>> axes = context.node().intsAttr("axes"))
    return llvm::SmallVector<int64_t, 8>(axes->begin(), axes->end());
  return context.constantIntegers(1);
}

// All axes of extent 1; nullopt if an extent may or may not be 1.
std::optional<llvm::SmallVector<int64_t, 8>> unitAxes(const TensorType& type) {
  llvm::SmallVector<int64_t, 8> axes;
  const Dim one = Dim::fixed(1);
  for (unsigned i = 0; i < type.rank(); ++i) {
    if (type.shape()[i].isKnownEqual(one))
      axes.push_back(i);
    else if (!type.shape()[i].isKnownDifferent(one))
      return std::nullopt;
  }
  return axes;
}

llvm::Error inferSqueeze(ShapeContext& context) {
  const TensorType& type = context.type(0);
  std::optional<llvm::SmallVector<int64_t, 8>> axes = axesOf(context);
  bool all = !axes && !context.has(1);
  if (all && type.hasRank())
    axes = unitAxes(type);
  if (!type.hasRank() || !axes) {
    std::optional<size_t> removed = listLength(context, 1);
    bool known = type.hasRank() && !all && removed && *removed <= type.rank();
    context.setResult(0, known
                             ? TensorType(context.element(0), unknownShape(type.rank() - *removed))
                             : TensorType(context.element(0)));
    return llvm::Error::success();
  }
  auto normalized = normalizedAxes(context, *axes, type.rank());
  if (!normalized)
    return normalized.takeError();
  llvm::SmallVector<bool, 8> isRemoved(type.rank(), false);
  for (unsigned axis : *normalized)
    isRemoved[axis] = true;
  Shape shape;
  for (unsigned i = 0; i < type.rank(); ++i) {
    if (!isRemoved[i])
      shape.push_back(type.shape()[i]);
    else if (type.shape()[i].isKnownDifferent(Dim::fixed(1)))
      return context.error(formatted("axis {} of {} is not 1", i, type.str()));
  }
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  context.setIntegers(0, context.integers(0));
  return llvm::Error::success();
}

llvm::Error inferUnsqueeze(ShapeContext& context) {
  const TensorType& type = context.type(0);
  std::optional<llvm::SmallVector<int64_t, 8>> axes = axesOf(context);
  if (!type.hasRank() || !axes) {
    std::optional<size_t> added = listLength(context, 1);
    context.setResult(0, type.hasRank() && added
                             ? TensorType(context.element(0), unknownShape(type.rank() + *added))
                             : TensorType(context.element(0)));
    return llvm::Error::success();
  }
  unsigned rank = type.rank() + static_cast<unsigned>(axes->size());
  auto normalized = normalizedAxes(context, *axes, rank);
  if (!normalized)
    return normalized.takeError();
  llvm::SmallVector<bool, 8> isNew(rank, false);
  for (unsigned axis : *normalized)
    isNew[axis] = true;
  Shape shape;
  unsigned next = 0;
  for (unsigned i = 0; i < rank; ++i)
    shape.push_back(isNew[i] ? Dim::fixed(1) : type.shape()[next++]);
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  context.setIntegers(0, context.integers(0));
  return llvm::Error::success();
}

llvm::Error inferTranspose(ShapeContext& context) {
  const TensorType& type = context.type(0);
  std::optional<llvm::ArrayRef<int64_t>> perm = context.node().intsAttr("perm");
  if (!type.hasRank()) {
    context.setResult(0, perm ? TensorType(context.element(0), unknownShape(perm->size()))
                              : TensorType(context.element(0)));
    return llvm::Error::success();
  }
  Shape shape;
  if (!perm) {
    shape.assign(type.shape().rbegin(), type.shape().rend());
  } else {
    if (perm->size() != type.rank())
      return context.error(
          formatted("perm has {} axes, {} has {}", perm->size(), type.str(), type.rank()));
    auto axes = normalizedAxes(context, *perm, type.rank());
    if (!axes)
      return axes.takeError();
    for (unsigned axis : *axes)
      shape.push_back(type.shape()[axis]);
  }
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  context.setIntegers(0, context.integers(0));
  return llvm::Error::success();
}

llvm::Error inferExpand(ShapeContext& context) {
  const TensorType& type = context.type(0);
  std::optional<Integers> target = context.integers(1);
  if (!target)
    if (std::optional<size_t> length = listLength(context, 1))
      target = Integers(*length, Dim::unknown());
  if (!type.hasRank() || !target) {
    context.setResult(0, TensorType(context.element(0)));
    return llvm::Error::success();
  }
  Shape wanted;
  for (const Dim& extent : *target)
    wanted.push_back(asExtent(extent));
  std::optional<Shape> shape = broadcastShapes(type.shape(), wanted);
  if (!shape)
    return context.error(formatted("{} does not broadcast to {}", type.str(),
                                   TensorType(context.element(0), wanted).str()));
  context.setResult(0, TensorType(context.element(0), *shape));
  std::optional<Integers> elements = context.integers(0);
  if (elements && elements->size() == 1 && shape->size() == 1)
    if (std::optional<int64_t> count = shape->front().value();
        count && *count <= maxTrackedIntegers)
      elements = Integers(static_cast<size_t>(*count), elements->front());
  context.setIntegers(0, std::move(elements));
  return llvm::Error::success();
}

llvm::Error inferTile(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (!type.hasRank()) {
    std::optional<size_t> rank = listLength(context, 1);
    context.setResult(0, rank ? TensorType(context.element(0), unknownShape(*rank))
                              : TensorType(context.element(0)));
    return llvm::Error::success();
  }
  std::optional<Integers> repeats = context.integers(1);
  if (repeats && repeats->size() != type.rank())
    return context.error(formatted("{} repeats for {}", repeats->size(), type.str()));
  Shape shape = unknownShape(type.rank());
  for (unsigned i = 0; repeats && i < type.rank(); ++i)
    shape[i] = asExtent(type.shape()[i] * (*repeats)[i]);
  context.setResult(0, TensorType(context.element(0), shape));
  std::optional<Integers> elements = context.integers(0);
  if (!elements || shape.size() != 1 || !shape[0].value() || !(*repeats)[0].value() ||
      *shape[0].value() > maxTrackedIntegers)
    return llvm::Error::success();
  Integers tiled;
  while (!elements->empty() && int64_t(tiled.size()) < *shape[0].value())
    tiled.append(elements->begin(), elements->end());
  context.setIntegers(0, std::move(tiled));
  return llvm::Error::success();
}

// Without perm the axes are reversed.
void readTranspose(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  auto perm = node.intsAttr("perm");
  if (perm && (!data.hasRank() || perm->size() == data.rank())) {
    movement.axes = axesWithin(*perm, static_cast<unsigned>(perm->size()));
  } else if (!perm && data.hasRank()) {
    movement.axes.emplace();
    for (unsigned axis = data.rank(); axis-- > 0;)
      movement.axes->push_back(axis);
  }
}

void readUnsqueeze(const Value& result, Movement& movement) {
  const TensorType& data = result.producer()->operand(0)->type();
  auto axes = knownIntegersOf(*result.producer(), 1, "axes");
  if (!axes || !(result.type().hasRank() || data.hasRank()))
    return;
  const auto added = static_cast<unsigned>(axes->size());
  const unsigned rank = result.type().hasRank() ? result.type().rank() : data.rank() + added;
  if (data.hasRank() && data.rank() + added != rank)
    return;
  movement.axes = axesWithin(*axes, rank);
  if (movement.axes)
    llvm::sort(*movement.axes);
}

// Without axes, all axes of extent 1 are removed: the known ones, if the ranks agree.
void readSqueeze(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  if (!data.hasRank())
    return;
  auto axes = knownIntegersOf(node, 1, "axes");
  if (!axes && !node.operand(1)) {
    axes.emplace();
    for (unsigned axis = 0; axis < data.rank(); ++axis)
      if (data.shape()[axis].value() == 1)
        axes->push_back(axis);
    if (!result.type().hasRank())
      return;
  }
  if (!axes || (result.type().hasRank() && result.type().rank() + axes->size() != data.rank()))
    return;
  movement.axes = axesWithin(*axes, data.rank());
  if (movement.axes)
    llvm::sort(*movement.axes);
}

void readExpand(const Value& result, Movement& movement) {
  const Value* shape = result.producer()->operand(1);
  if (!shape || !result.type().hasRank() || shape->type().dim(0).value() != result.type().rank())
    return;
  auto known = shape->knownIntegers();
  for (unsigned axis = 0; axis < result.type().rank(); ++axis)
    movement.counts.push_back({known ? (*known)[axis] : Dim::unknown(), shape, axis});
}

void readTile(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  const Value* repeats = node.operand(1);
  auto known = repeats ? repeats->knownIntegers() : std::nullopt;
  if (!data.hasRank() || !repeats || (known && known->size() != data.rank()))
    return;
  for (unsigned axis = 0; axis < data.rank(); ++axis)
    movement.counts.push_back({known ? (*known)[axis] : Dim::unknown(), repeats, axis});
}

} // namespace

void register_reshape(OpRegistry& registry) {
  define(registry, "Reshape", 5)
      .in("data")
      .in("shape")
      .out("reshaped")
      .moves(MovementKind::Reshape)
      .view()
      .shape(inferReshape);
  define(registry, "Reshape", 14)
      .in("data")
      .in("shape")
      .out("reshaped")
      .attr("allowzero", int64_t{0})
      .moves(MovementKind::Reshape)
      .view()
      .shape(inferReshape);
  define(registry, "Flatten", 1)
      .in("input")
      .out("output")
      .attr("axis", int64_t{1})
      .moves(MovementKind::Reshape)
      .view()
      .shape(inferFlatten);
  define(registry, "Squeeze", 1)
      .in("data")
      .out("squeezed")
      .attr("axes", AttributeKind::Ints)
      .moves(MovementKind::RemoveAxes, readSqueeze)
      .view()
      .shape(inferSqueeze);
  define(registry, "Squeeze", 13)
      .in("data")
      .in("axes?")
      .out("squeezed")
      .moves(MovementKind::RemoveAxes, readSqueeze)
      .view()
      .shape(inferSqueeze);
  define(registry, "Unsqueeze", 1)
      .in("data")
      .out("expanded")
      .requiredAttr("axes", AttributeKind::Ints)
      .moves(MovementKind::InsertAxes, readUnsqueeze)
      .view()
      .shape(inferUnsqueeze);
  define(registry, "Unsqueeze", 13)
      .in("data")
      .in("axes")
      .out("expanded")
      .moves(MovementKind::InsertAxes, readUnsqueeze)
      .view()
      .shape(inferUnsqueeze);
  define(registry, "Transpose", 1)
      .in("data")
      .out("transposed")
      .attr("perm", AttributeKind::Ints)
      .moves(MovementKind::Permutation, readTranspose)
      .shape(inferTranspose);
  define(registry, "Expand", 8)
      .in("input")
      .in("shape")
      .out("output")
      .moves(MovementKind::Broadcast, readExpand)
      .shape(inferExpand);
  define(registry, "Tile", 6)
      .in("input")
      .in("repeats")
      .out("output")
      .moves(MovementKind::Repeat, readTile)
      .shape(inferTile);
}

} // namespace kvopt::ir
