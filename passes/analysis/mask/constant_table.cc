// Recognition of constant tables by evaluation.
#include "passes/analysis/mask/constant_table.h"

#include "support/half.h"

#include <cmath>
#include <cstring>

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr int64_t maxTableElements = int64_t{1} << 24;
constexpr size_t maxBands = 3;
constexpr double maxStep = 1 << 24;

/// Reads elements as doubles, exactly.
class Elements {
public:
  Elements(std::span<const std::byte> data, ElementType elementType)
      : bytes(data.data()), type(elementType) {}

  static bool canRead(ElementType type) {
    switch (type) {
    case ElementType::Bool:
    case ElementType::UInt8:
    case ElementType::Int8:
    case ElementType::Int32:
    case ElementType::Int64:
    case ElementType::Float:
    case ElementType::Double:
    case ElementType::Float16:
    case ElementType::BFloat16:
      return true;
    default:
      return false;
    }
  }

  bool holdsIntegers() const { return !isFloatingPoint(type); }

  double operator[](int64_t k) const {
    switch (type) {
    case ElementType::Bool:
      return load<uint8_t>(k) != 0 ? 1 : 0;
    case ElementType::UInt8:
      return load<uint8_t>(k);
    case ElementType::Int8:
      return load<int8_t>(k);
    case ElementType::Int32:
      return load<int32_t>(k);
    case ElementType::Int64:
      return static_cast<double>(load<int64_t>(k));
    case ElementType::Float:
      return static_cast<double>(load<float>(k));
    case ElementType::Float16:
      return static_cast<double>(f16ToFloat(load<uint16_t>(k)));
    case ElementType::BFloat16:
      return static_cast<double>(bf16ToFloat(load<uint16_t>(k)));
    default:
      return load<double>(k);
    }
  }

private:
  template <class T> T load(int64_t k) const {
    T value;
    std::memcpy(&value, bytes + static_cast<size_t>(k) * sizeof(T), sizeof(T));
    return value;
  }

  const std::byte* bytes;
  ElementType type;
};

struct Axis {
  unsigned number;
  int64_t extent;
  int64_t stride;
};

std::optional<ConstantTable> affineTable(const Elements& elements, int64_t count,
                                         llvm::ArrayRef<Axis> axes, size_t rank) {
  ConstantTable table;
  table.base = elements[0];
  table.steps.assign(rank, 0);
  bool isConstant = true;
  for (const Axis& axis : axes) {
    double step = elements[axis.stride] - elements[0];
    if (step == 0 || (std::isinf(elements[0]) && elements[axis.stride] == elements[0]))
      continue;
    if (!(std::abs(step) <= maxStep) || step != std::trunc(step))
      return std::nullopt;
    isConstant = false;
    table.steps[axis.number] = static_cast<int64_t>(step);
  }
  constexpr double exactIntegers = 9007199254740992.0; // 2^53
  if (std::isfinite(table.base) && table.base == std::trunc(table.base) &&
      std::abs(table.base) >= exactIntegers && elements.holdsIntegers())
    return std::nullopt;
  if (!isConstant && (table.base != std::trunc(table.base) || std::abs(table.base) > maxStep))
    return std::nullopt;
  for (int64_t k = 0; k < count; ++k) {
    double expected = table.base;
    for (const Axis& axis : axes)
      if (int64_t step = table.steps[axis.number])
        expected += static_cast<double>(step * (k / axis.stride % axis.extent));
    if (elements[k] != expected)
      return std::nullopt;
  }
  return table;
}

std::optional<ConstantTable> bandedTable(const Elements& elements, const Axis& row,
                                         const Axis& column) {
  // Every diagonal is constant.
  for (int64_t r = 1; r < row.extent; ++r)
    for (int64_t c = 1; c < column.extent; ++c)
      if (elements[r * row.stride + c * column.stride] !=
          elements[(r - 1) * row.stride + (c - 1) * column.stride])
        return std::nullopt;
  ConstantTable table;
  table.form = ConstantTable::Form::Banded;
  table.rowAxis = row.number;
  table.columnAxis = column.number;
  for (int64_t difference = 1 - row.extent; difference < column.extent; ++difference) {
    double value =
        difference < 0 ? elements[-difference * row.stride] : elements[difference * column.stride];
    if (!table.bands.empty() && table.bands.back().value == value)
      continue;
    if (table.bands.size() == maxBands || std::isnan(value))
      return std::nullopt;
    table.bands.push_back({difference, value});
  }
  return table;
}

} // namespace

std::optional<ConstantTable> recognizeTable(const TensorData& tensor) {
  if (tensor.elementCount() < 1 || tensor.elementCount() > maxTableElements ||
      !Elements::canRead(tensor.elementType()))
    return std::nullopt;
  auto bytes = tensor.bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return std::nullopt;
  }
  Elements elements(*bytes, tensor.elementType());
  llvm::SmallVector<Axis, 4> axes; // with more than one element
  int64_t stride = 1;
  for (size_t axis = tensor.shape().size(); axis-- > 0;) {
    int64_t extent = tensor.shape()[axis];
    if (extent > 1)
      axes.insert(axes.begin(), Axis{static_cast<unsigned>(axis), extent, stride});
    stride *= extent;
  }
  if (axes.size() > 2)
    return std::nullopt;
  if (auto table = affineTable(elements, tensor.elementCount(), axes, tensor.shape().size()))
    return table;
  return axes.size() == 2 ? bandedTable(elements, axes[0], axes[1]) : std::nullopt;
}

} // namespace kvopt::analysis
