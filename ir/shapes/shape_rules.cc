// Shared parts of shape rules: broadcasting, axes, provable arithmetic on extents.
#include "ir/shapes/shape_rules.h"

#include "support/diagnostic.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::ir {

TensorType typeOf(ElementType element, std::optional<Shape> dims) {
  return dims ? TensorType(element, std::move(*dims)) : TensorType(element);
}

Shape shapeOf(const TensorType& type) { return Shape(type.shape().begin(), type.shape().end()); }

Shape unknownShape(size_t rank) { return Shape(rank, Dim::unknown()); }

llvm::Error inferSameAsFirst(ShapeContext& context) {
  context.setResult(0, context.type(0));
  return llvm::Error::success();
}

llvm::Error inferCopyOfFirst(ShapeContext& context) {
  context.setResult(0, context.type(0));
  context.setIntegers(0, context.integers(0));
  return llvm::Error::success();
}

llvm::Error inferBroadcast(ShapeContext& context) {
  unsigned count = static_cast<unsigned>(context.node().operands().size());
  llvm::Expected<std::optional<Shape>> shape = broadcastOperands(context, 0, count);
  if (!shape)
    return shape.takeError();
  context.setResult(0, typeOf(context.element(0), std::move(*shape)));
  return llvm::Error::success();
}

llvm::Expected<std::optional<Shape>> broadcastOperands(ShapeContext& context, unsigned first,
                                                       unsigned last) {
  std::optional<Shape> shape = Shape();
  for (unsigned i = first; i < last; ++i) {
    if (!context.type(i).hasRank())
      return std::optional<Shape>();
    std::optional<Shape> wider = broadcastShapes(*shape, context.type(i).shape());
    if (!wider)
      return context.error(formatted("operand {} of type {} does not broadcast to {}", i,
                                     context.type(i).str(),
                                     TensorType(context.element(first), *shape).str()));
    shape = std::move(wider);
  }
  return shape;
}

std::optional<Dim> scalarInteger(const ShapeContext& context, unsigned operand) {
  auto elements = context.integers(operand);
  if (!elements || elements->size() != 1 || elements->front().isUnknown())
    return std::nullopt;
  return elements->front();
}

std::optional<int64_t> constantScalar(const ShapeContext& context, unsigned operand) {
  std::optional<Dim> value = scalarInteger(context, operand);
  return value ? value->value() : std::nullopt;
}

llvm::Expected<unsigned> axisAttr(const ShapeContext& context, llvm::StringRef name,
                                  int64_t otherwise, unsigned rank) {
  int64_t axis = context.node().intAttr(name, otherwise);
  if (std::optional<unsigned> normalized = normalizedAxis(axis, rank))
    return *normalized;
  return context.error(formatted("{} {} is outside rank {}", name, axis, rank));
}

llvm::Expected<llvm::SmallVector<unsigned, 4>>
normalizedAxes(const ShapeContext& context, llvm::ArrayRef<int64_t> axes, unsigned rank) {
  llvm::SmallVector<unsigned, 4> result;
  llvm::SmallVector<bool, 8> seen(rank, false);
  for (int64_t axis : axes) {
    std::optional<unsigned> normalized = normalizedAxis(axis, rank);
    if (!normalized)
      return context.error(formatted("axis {} is outside rank {}", axis, rank));
    if (seen[*normalized])
      return context.error(formatted("axis {} occurs twice", axis));
    seen[*normalized] = true;
    result.push_back(*normalized);
  }
  return result;
}

Dim heldBy(ElementType element, const Dim& value) {
  if (element == ElementType::Bool)
    return value;
  std::optional<unsigned> bits = bitWidth(element);
  if (!isInteger(element) || !bits)
    return Dim::unknown();
  std::optional<int64_t> constant = value.value();
  if (!constant)
    return *bits >= 32 && (!isUnsigned(element) || value.isKnownNonNegative()) ? value
                                                                               : Dim::unknown();
  if (*bits >= 64)
    return !isUnsigned(element) || *constant >= 0 ? value : Dim::unknown();
  int64_t span = int64_t{1} << (isUnsigned(element) ? *bits : *bits - 1);
  bool fits = *constant < span && *constant >= (isUnsigned(element) ? 0 : -span);
  return fits ? value : Dim::unknown();
}

Dim mergedExtent(const Dim& a, const Dim& b) {
  if (a.isUnknown() || b.value())
    return b;
  return a;
}

Dim ceilDivide(const Dim& value, int64_t divisor) {
  if (std::optional<int64_t> constant = value.value()) {
    int64_t quotient = *constant / divisor;
    return Dim::fixed(*constant % divisor > 0 ? quotient + 1 : quotient);
  }
  return value.dividedBy(Dim::fixed(divisor)).value_or(Dim::unknown());
}

std::optional<Shape> scannedRow(const Node& scan, size_t index, const TensorType& type) {
  if (!type.hasRank())
    return std::nullopt;
  const auto axes = scan.intsAttr("scan_input_axes");
  const auto axis = normalizedAxis(axes && index < axes->size() ? (*axes)[index] : 0, type.rank());
  if (!axis)
    return std::nullopt;
  Shape row = shapeOf(type);
  row.erase(row.begin() + *axis);
  return row;
}

Dim ownExtent(const Value& result, unsigned axis) {
  return result.graph().parentNode() ? Dim::unknown()
                                     : Dim::symbol(formatted("{}[{}]", result.name(), axis));
}

bool isOpenExtent(const Dim& extent) {
  return extent.isUnknown() || llvm::any_of(extent.symbols(), [](llvm::StringRef symbol) {
           return endsWith(symbol, "]"); // see ownExtent; inputs with such names are as open
         });
}

Dim productOf(llvm::ArrayRef<Dim> extents) {
  Dim product = Dim::fixed(1);
  for (const Dim& extent : extents)
    product = product * extent;
  return product;
}

llvm::Expected<std::optional<Shape>> matMulShape(const ShapeContext& context, const TensorType& a,
                                                 const TensorType& b) {
  if (!a.hasRank() || !b.hasRank())
    return std::optional<Shape>();
  if (a.rank() == 0 || b.rank() == 0)
    return context.error("a factor is a scalar");
  if (llvm::Error error =
          requireEqual(context, a.dim(-1), b.dim(b.rank() == 1 ? 0 : -2), "inner extents"))
    return error;
  llvm::ArrayRef<Dim> batchA = a.shape().drop_back(std::min(a.rank(), 2u));
  llvm::ArrayRef<Dim> batchB = b.shape().drop_back(std::min(b.rank(), 2u));
  std::optional<Shape> shape = broadcastShapes(batchA, batchB);
  if (!shape)
    return context.error(formatted("batch axes of {} and {} do not broadcast", a.str(), b.str()));
  if (a.rank() > 1)
    shape->push_back(a.dim(-2));
  if (b.rank() > 1)
    shape->push_back(b.dim(-1));
  return shape;
}

llvm::Error requireEqual(const ShapeContext& context, const Dim& a, const Dim& b,
                         llvm::StringRef what) {
  if (!a.isKnownDifferent(b))
    return llvm::Error::success();
  return context.error(formatted("{} differ: {} and {}", what, a.str(), b.str()));
}

llvm::Error requireRank(const ShapeContext& context, unsigned operand, unsigned rank) {
  const TensorType& type = context.type(operand);
  if (!type.hasRank() || type.rank() == rank)
    return llvm::Error::success();
  return context.error(
      formatted("operand {} is {}, its rank should be {}", operand, type.str(), rank));
}

} // namespace kvopt::ir
