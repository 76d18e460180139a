// Operators that select elements by index: Gather, GatherElements, GatherND, TopK, ArgMax, NonZero,
// OneHot.
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

// Elements of a list at constant or unknown indices.
std::optional<Integers> pickElements(const std::optional<Integers>& data,
                                     const std::optional<Integers>& indices) {
  if (!data || !indices)
    return std::nullopt;
  Integers picked;
  for (const Dim& index : *indices) {
    std::optional<unsigned> place =
        index.value() ? normalizedAxis(*index.value(), static_cast<unsigned>(data->size()))
                      : std::nullopt;
    picked.push_back(place ? (*data)[*place] : Dim::unknown());
  }
  return picked;
}

llvm::Error inferGather(ShapeContext& context) {
  const TensorType& data = context.type(0);
  const TensorType& indices = context.type(1);
  if (!data.hasRank()) {
    context.setResult(0, TensorType(context.element(0)));
    return llvm::Error::success();
  }
  if (data.rank() == 0)
    return context.error("the data is a scalar");
  llvm::Expected<unsigned> axis = axisAttr(context, "axis", 0, data.rank());
  if (!axis)
    return axis.takeError();
  if (!indices.hasRank()) {
    context.setResult(0, TensorType(context.element(0)));
    return llvm::Error::success();
  }
  Shape shape(data.shape().begin(), data.shape().begin() + *axis);
  shape.append(indices.shape().begin(), indices.shape().end());
  shape.append(data.shape().begin() + *axis + 1, data.shape().end());
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  if (data.rank() == 1)
    context.setIntegers(0, pickElements(context.integers(0), context.integers(1)));
  return llvm::Error::success();
}

llvm::Error inferGatherElements(ShapeContext& context) {
  const TensorType& data = context.type(0);
  TensorType type = context.type(1);
  if (data.hasRank() && type.hasRank() && data.rank() != type.rank())
    return context.error(
        formatted("ranks of data {} and indices {} differ", data.str(), type.str()));
  if (data.hasRank()) {
    llvm::Expected<unsigned> axis = axisAttr(context, "axis", 0, data.rank());
    if (!axis)
      return axis.takeError();
  }
  type.setElementType(context.element(0));
  context.setResult(0, std::move(type));
  if (data.hasRank() && data.rank() == 1)
    context.setIntegers(0, pickElements(context.integers(0), context.integers(1)));
  return llvm::Error::success();
}

llvm::Error inferGatherND(ShapeContext& context) {
  const TensorType& data = context.type(0);
  const TensorType& indices = context.type(1);
  context.setResult(0, TensorType(context.element(0)));
  if (!data.hasRank() || !indices.hasRank())
    return llvm::Error::success();
  std::optional<int64_t> width = indices.dim(-1).value();
  int64_t batch = context.node().intAttr("batch_dims", 0);
  if (indices.rank() == 0 || data.rank() == 0)
    return context.error("data or indices are a scalar");
  if (batch < 0 || batch >= int64_t{data.rank()} || batch >= int64_t{indices.rank()})
    return context.error(formatted("batch_dims {} is outside the ranks", batch));
  if (!width)
    return llvm::Error::success();
  if (*width < 1 || *width > int64_t{data.rank()} - batch)
    return context.error(formatted("{} indices into {}", *width, data.str()));
  Shape shape(indices.shape().begin(), indices.shape().end() - 1);
  for (int64_t i = 0; i < batch; ++i)
    shape[static_cast<size_t>(i)] = mergedExtent(data.dim(i), indices.dim(i));
  shape.append(data.shape().begin() + batch + *width, data.shape().end());
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  return llvm::Error::success();
}

llvm::Error inferTopK(ShapeContext& context) {
  TensorType values = context.type(0);
  TensorType indices(ElementType::Int64);
  if (values.hasRank()) {
    llvm::Expected<unsigned> axis = axisAttr(context, "axis", -1, values.rank());
    if (!axis)
      return axis.takeError();
    Shape shape = shapeOf(values);
    std::optional<Dim> k = scalarInteger(context, 1);
    if (std::optional<int64_t> written =
            context.opset() < 10 ? std::optional(context.node().intAttr("k", -1)) : std::nullopt)
      k = Dim::fixed(*written);
    shape[*axis] = k && k->isKnownNonNegative() ? *k : Dim::unknown();
    values.setShape(shape);
    indices.setShape(shape);
  }
  context.setResult(0, std::move(values));
  context.setResult(1, std::move(indices));
  return llvm::Error::success();
}

llvm::Error inferArgMax(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (!type.hasRank()) {
    context.setResult(0, TensorType(ElementType::Int64));
    return llvm::Error::success();
  }
  llvm::Expected<unsigned> axis = axisAttr(context, "axis", 0, type.rank());
  if (!axis)
    return axis.takeError();
  Shape shape = shapeOf(type);
  if (context.node().intAttr("keepdims", 1) != 0)
    shape[*axis] = Dim::fixed(1);
  else
    shape.erase(shape.begin() + *axis);
  context.setResult(0, TensorType(ElementType::Int64, std::move(shape)));
  return llvm::Error::success();
}

llvm::Error inferNonZero(ShapeContext& context) {
  Shape shape = unknownShape(2);
  if (context.type(0).hasRank() && context.type(0).rank() != 0)
    shape[0] = Dim::fixed(context.type(0).rank());
  shape[1] = ownExtent(context.node().result(), 1);
  context.setResult(0, TensorType(ElementType::Int64, std::move(shape)));
  return llvm::Error::success();
}

llvm::Error inferOneHot(ShapeContext& context) {
  const TensorType& indices = context.type(0);
  if (!indices.hasRank()) {
    context.setResult(0, TensorType(context.element(2)));
    return llvm::Error::success();
  }
  llvm::Expected<unsigned> axis = axisAttr(context, "axis", -1, indices.rank() + 1);
  if (!axis)
    return axis.takeError();
  Shape shape = shapeOf(indices);
  std::optional<Dim> depth = scalarInteger(context, 1);
  shape.insert(shape.begin() + *axis,
               depth && depth->isKnownNonNegative() ? *depth : Dim::unknown());
  context.setResult(0, TensorType(context.element(2), std::move(shape)));
  return llvm::Error::success();
}

void readGather(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  if (data.hasRank())
    movement.axes = axesWithin({node.intAttr("axis", 0)}, data.rank());
}

// Without batch axes: the last axis of the indices has one entry for each of the first axes of the
// data.
void readGatherND(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  const Value* indices = node.operand(1);
  if (node.intAttr("batch_dims", 0) != 0 || !data.hasRank() || !indices)
    return;
  const int64_t width = indices->type().dim(-1).value().value_or(0);
  if (width < 1 || width > int64_t{data.rank()})
    return;
  movement.axes.emplace();
  for (unsigned axis = 0; axis < width; ++axis)
    movement.axes->push_back(axis);
}

} // namespace

void register_gather(OpRegistry& registry) {
  define(registry, "Gather", 1)
      .in("data")
      .in("indices")
      .out("output")
      .attr("axis", int64_t{0})
      .moves(MovementKind::Gather, readGather)
      .shape(inferGather);
  define(registry, "GatherElements", 11)
      .in("data")
      .in("indices")
      .out("output")
      .attr("axis", int64_t{0})
      .shape(inferGatherElements);
  define(registry, "GatherND", 11)
      .in("data")
      .in("indices")
      .out("output")
      .attr("batch_dims", int64_t{0})
      .moves(MovementKind::PointGather, readGatherND)
      .shape(inferGatherND);
  define(registry, "TopK", 1)
      .in("X")
      .out("Values")
      .out("Indices")
      .attr("axis", int64_t{-1})
      .requiredAttr("k", AttributeKind::Int)
      .shape(inferTopK);
  define(registry, "TopK", 10)
      .in("X")
      .in("K")
      .out("Values")
      .out("Indices")
      .attr("axis", int64_t{-1})
      .attr("largest", int64_t{1})
      .attr("sorted", int64_t{1})
      .shape(inferTopK);
  for (const char* name : {"ArgMax", "ArgMin"}) {
    define(registry, name, 1)
        .in("data")
        .out("reduced")
        .attr("axis", int64_t{0})
        .attr("keepdims", int64_t{1})
        .shape(inferArgMax);
    define(registry, name, 12)
        .in("data")
        .out("reduced")
        .attr("axis", int64_t{0})
        .attr("keepdims", int64_t{1})
        .attr("select_last_index", int64_t{0})
        .shape(inferArgMax);
  }
  define(registry, "NonZero", 9).in("X").out("Y").shape(inferNonZero);
  define(registry, "OneHot", 9)
      .in("indices")
      .in("depth")
      .in("values")
      .out("output")
      .attr("axis", int64_t{-1})
      .shape(inferOneHot);
}

} // namespace kvopt::ir
