// Casts, copies, and values that depend only on shapes.
#include "ir/ops/dim_combination.h"
#include "ir/shapes/shape_rules.h"

#include <algorithm>
#include <cmath>

namespace kvopt::ir {
namespace {

/// Numbers of a small float constant after a cast to `to`, which rounds toward zero. A number that
/// does not fit into `to` is unknown.
std::optional<Integers> castFloats(const Value* value, ElementType to) {
  const TensorData* data = value ? value->constant() : nullptr;
  if (!data || data->shape().size() > 1)
    return std::nullopt;
  const auto numbers = floatValues(*data, maxTrackedIntegers);
  if (!numbers)
    return std::nullopt;
  Integers elements;
  for (double number : *numbers) {
    if (to == ElementType::Bool) {
      elements.push_back(Dim::fixed(number == 0 ? 0 : 1));
      continue;
    }
    constexpr double limit = 0x1p31;
    const Dim whole =
        std::abs(number) < limit ? Dim::fixed(static_cast<int64_t>(number)) : Dim::unknown();
    elements.push_back(heldBy(to, whole) == whole ? whole : Dim::unknown());
  }
  return elements;
}

// A cast to an integer type keeps the known elements, integers or float constants, that fit into
// the new type. Other casts lose the contents.
void setCast(ShapeContext& context, ElementType to) {
  TensorType type = context.type(0);
  type.setElementType(to);
  context.setResult(0, std::move(type));
  if (!isInteger(to) && to != ElementType::Bool)
    return;
  std::optional<Integers> elements = context.integers(0);
  if (!elements)
    return context.setIntegers(0, castFloats(context.node().operand(0), to));
  for (Dim& element : *elements) {
    if (to != ElementType::Bool)
      element = heldBy(to, element);
    else if (element.isKnownEqual(Dim::fixed(0)))
      element = Dim::fixed(0);
    else
      element = element.isKnownDifferent(Dim::fixed(0)) ? Dim::fixed(1) : Dim::unknown();
  }
  context.setIntegers(0, std::move(elements));
}

llvm::Error inferCast(ShapeContext& context) {
  int64_t to = context.node().intAttr("to", 0);
  if (to > 0 && to < 1000)
    setCast(context, static_cast<ElementType>(to));
  return llvm::Error::success();
}

llvm::Error inferBitCast(ShapeContext& context) {
  const int64_t to = context.node().intAttr("to", 0);
  TensorType type = context.type(0);
  const bool isKnown = to > 0 && to < 1000;
  type.setElementType(isKnown ? static_cast<ElementType>(to) : ElementType::Undefined);
  const std::optional<unsigned> from = bitWidth(context.element(0));
  if (from && isKnown && bitWidth(type.elementType()) && bitWidth(type.elementType()) != from)
    return context.error(formatted("{} has {} bits, {} has {}", onnxName(context.element(0)), *from,
                                   onnxName(type.elementType()), *bitWidth(type.elementType())));
  context.setResult(0, std::move(type));
  return llvm::Error::success();
}

llvm::Error inferCastLike(ShapeContext& context) {
  if (context.element(1) != ElementType::Undefined)
    setCast(context, context.element(1));
  return llvm::Error::success();
}

llvm::Error inferDropout(ShapeContext& context) {
  context.setResult(0, context.type(0));
  TensorType mask = context.type(0);
  if (context.opset() >= 10) // before, the result has the data's type
    mask.setElementType(ElementType::Bool);
  context.setResult(1, std::move(mask));
  return llvm::Error::success();
}

llvm::Error inferConstant(ShapeContext& context) {
  for (const NamedAttribute& entry : context.node().attributes()) {
    const Attribute& value = entry.value;
    if (entry.name == "value" && value.kind() == AttributeKind::Tensor && value.tensorValue()) {
      const TensorData& tensor = *value.tensorValue();
      context.setResult(0, TensorType::fixed(tensor.elementType(), tensor.shape()));
      std::optional<Integers> elements;
      if (auto integers = tensor.shape().size() <= 1 ? integerValues(tensor, maxTrackedIntegers)
                                                     : std::nullopt) {
        elements.emplace();
        for (int64_t element : *integers)
          elements->push_back(Dim::fixed(element));
      }
      context.setIntegers(0, std::move(elements));
    } else if (entry.name == "value_int" && value.kind() == AttributeKind::Int) {
      context.setResult(0, TensorType::fixed(ElementType::Int64, {}));
      context.setIntegers(0, Integers{Dim::fixed(value.intValue())});
    } else if (entry.name == "value_ints" && value.kind() == AttributeKind::Ints) {
      int64_t count = static_cast<int64_t>(value.ints().size());
      context.setResult(0, TensorType::fixed(ElementType::Int64, {count}));
      Integers elements;
      if (count <= maxTrackedIntegers)
        for (int64_t element : value.ints())
          elements.push_back(Dim::fixed(element));
      context.setIntegers(0, std::move(elements));
    } else if (entry.name == "value_float" && value.kind() == AttributeKind::Float) {
      context.setResult(0, TensorType::fixed(ElementType::Float, {}));
    } else if (entry.name == "value_floats" && value.kind() == AttributeKind::Floats) {
      int64_t count = static_cast<int64_t>(value.floats().size());
      context.setResult(0, TensorType::fixed(ElementType::Float, {count}));
    } else if (entry.name == "value_string" && value.kind() == AttributeKind::String) {
      context.setResult(0, TensorType::fixed(ElementType::String, {}));
    } else if (entry.name == "value_strings" && value.kind() == AttributeKind::Strings) {
      int64_t count = static_cast<int64_t>(value.strings().size());
      context.setResult(0, TensorType::fixed(ElementType::String, {count}));
    }
  }
  return llvm::Error::success();
}

// The extent if it cannot be negative; unknown otherwise.

llvm::Error inferConstantOfShape(ShapeContext& context) {
  ElementType element = ElementType::Float;
  std::optional<int64_t> fill;
  if (const Attribute* value = context.node().attribute("value");
      value && value->kind() == AttributeKind::Tensor && value->tensorValue()) {
    element = value->tensorValue()->elementType();
    if (auto integers = integerValues(*value->tensorValue(), 1); integers && integers->size() == 1)
      fill = integers->front();
  }
  if (llvm::Error error = requireRank(context, 0, 1))
    return error;
  std::optional<Integers> target = context.integers(0);
  if (!target) {
    std::optional<int64_t> rank = context.type(0).dim(0).value();
    bool tracked = context.type(0).hasRank() && rank && *rank >= 0 && *rank <= maxTrackedIntegers;
    context.setResult(0, tracked ? TensorType(element, unknownShape(static_cast<size_t>(*rank)))
                                 : TensorType(element));
    return llvm::Error::success();
  }
  Shape shape;
  for (const Dim& extent : *target) {
    if (extent.value() && *extent.value() < 0)
      return context.error(formatted("extent {} is negative", *extent.value()));
    shape.push_back(asExtent(extent));
  }
  std::optional<int64_t> count = shape.empty() ? 1 : shape.front().value();
  context.setResult(0, TensorType(element, shape));
  if (fill && shape.size() <= 1 && count && *count <= maxTrackedIntegers)
    context.setIntegers(0, Integers(static_cast<size_t>(*count), Dim::fixed(*fill)));
  return llvm::Error::success();
}

llvm::Error inferShape(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (!type.hasRank()) {
    context.setResult(0, TensorType(ElementType::Int64, unknownShape(1)));
    return llvm::Error::success();
  }
  int64_t rank = type.rank();
  auto clamped = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  int64_t start = clamped(context.node().intAttr("start", 0));
  int64_t end = clamped(context.node().intAttr("end", rank));
  Integers extents;
  for (int64_t axis = start; axis < end; ++axis)
    extents.push_back(type.shape()[static_cast<size_t>(axis)]);
  context.setResult(0, TensorType::fixed(ElementType::Int64, {int64_t(extents.size())}));
  context.setIntegers(0, std::move(extents));
  return llvm::Error::success();
}

llvm::Error inferSize(ShapeContext& context) {
  context.setResult(0, TensorType::fixed(ElementType::Int64, {}));
  context.setIntegers(0, Integers{context.type(0).elementCount()});
  return llvm::Error::success();
}

// max(0, ⌈(limit - start) / delta⌉), or unknown.
Dim rangeLength(const Dim& start, const Dim& limit, const Dim& delta) {
  std::optional<int64_t> step = delta.value();
  if (!step || *step == 0 || *step == INT64_MIN)
    return Dim::unknown();
  Dim span = *step > 0 ? limit - start : start - limit;
  if ((-span).isKnownNonNegative())
    return Dim::fixed(0);
  return span.isKnownNonNegative() ? ceilDivide(span, *step > 0 ? *step : -*step) : Dim::unknown();
}

llvm::Error inferRange(ShapeContext& context) {
  ElementType element = context.element(0);
  for (unsigned i = 1; i < 3 && element == ElementType::Undefined; ++i)
    element = context.element(i);
  std::optional<Dim> start = scalarInteger(context, 0);
  std::optional<Dim> limit = scalarInteger(context, 1);
  std::optional<Dim> delta = scalarInteger(context, 2);
  if (delta && delta->value() == int64_t{0})
    return context.error("delta is 0");
  Dim length = start && limit && delta ? rangeLength(*start, *limit, *delta) : Dim::unknown();
  context.setResult(0, TensorType(element, Shape{length}));
  if (!length.value() || *length.value() > maxTrackedIntegers)
    return llvm::Error::success();
  Integers elements;
  for (int64_t i = 0; i < *length.value(); ++i)
    elements.push_back(heldBy(element, *start + Dim::fixed(i) * *delta));
  context.setIntegers(0, std::move(elements));
  return llvm::Error::success();
}

} // namespace

void register_conversion(OpRegistry& registry) {
  define(registry, "Cast", 6)
      .in("input")
      .out("output")
      .requiredAttr("to", AttributeKind::Int)
      .moves(MovementKind::Convert)
      .shape(inferCast);
  define(registry, "Cast", 19)
      .in("input")
      .out("output")
      .requiredAttr("to", AttributeKind::Int)
      .attr("saturate", int64_t{1})
      .moves(MovementKind::Convert)
      .shape(inferCast);
  define(registry, "Cast", 24)
      .in("input")
      .out("output")
      .requiredAttr("to", AttributeKind::Int)
      .attr("saturate", int64_t{1})
      .attr("round_mode", "up")
      .moves(MovementKind::Convert)
      .shape(inferCast);
  define(registry, "BitCast", 26)
      .in("input")
      .out("output")
      .requiredAttr("to", AttributeKind::Int)
      .elementwise(ElementFunction::Bits)
      .shape(inferBitCast);
  define(registry, "CastLike", 15)
      .in("input")
      .in("target_type")
      .out("output")
      .moves(MovementKind::Convert)
      .shape(inferCastLike);
  define(registry, "CastLike", 19)
      .in("input")
      .in("target_type")
      .out("output")
      .attr("saturate", int64_t{1})
      .moves(MovementKind::Convert)
      .shape(inferCastLike);
  define(registry, "Identity", 1)
      .in("input")
      .out("output")
      .moves(MovementKind::Same)
      .view()
      .shape(inferCopyOfFirst);
  define(registry, "Dropout", 7)
      .in("data")
      .out("output")
      .out("mask?")
      .attr("ratio", 0.5f)
      .shape(inferDropout);
  define(registry, "Dropout", 12)
      .in("data")
      .in("ratio?")
      .in("training_mode?")
      .out("output")
      .out("mask?")
      .attr("seed", AttributeKind::Int)
      .shape(inferDropout);
  define(registry, "Constant", 1)
      .out("output")
      .requiredAttr("value", AttributeKind::Tensor)
      .shape(inferConstant);
  define(registry, "Constant", 11)
      .out("output")
      .attr("value", AttributeKind::Tensor)
      .attr("sparse_value", AttributeKind::SparseTensor)
      .shape(inferConstant);
  define(registry, "Constant", 12)
      .out("output")
      .attr("value", AttributeKind::Tensor)
      .attr("sparse_value", AttributeKind::SparseTensor)
      .attr("value_int", AttributeKind::Int)
      .attr("value_ints", AttributeKind::Ints)
      .attr("value_float", AttributeKind::Float)
      .attr("value_floats", AttributeKind::Floats)
      .attr("value_string", AttributeKind::String)
      .attr("value_strings", AttributeKind::Strings)
      .shape(inferConstant);
  define(registry, "ConstantOfShape", 9)
      .in("input")
      .out("output")
      .attr("value", AttributeKind::Tensor)
      .shape(inferConstantOfShape);
  define(registry, "Shape", 1).in("data").out("shape").shape(inferShape);
  define(registry, "Shape", 15)
      .in("data")
      .out("shape")
      .attr("start", int64_t{0})
      .attr("end", AttributeKind::Int)
      .shape(inferShape);
  define(registry, "Size", 1).in("data").out("size").shape(inferSize);
  define(registry, "Range", 11).in("start").in("limit").in("delta").out("output").shape(inferRange);
  define(registry, "Range", 27)
      .in("start")
      .in("limit")
      .in("delta")
      .out("output")
      .attr("stash_type", int64_t{1})
      .shape(inferRange);
}

} // namespace kvopt::ir
