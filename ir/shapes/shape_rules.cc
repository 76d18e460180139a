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

std::optional<Dim> scalarInteger(const ShapeContext& context, unsigned operand) {
  auto elements = context.integers(operand);
  if (!elements || elements->size() != 1 || elements->front().isUnknown())
    return std::nullopt;
  return elements->front();
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
