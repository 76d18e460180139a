// Closed forms of constants, and the entries that are read.
#include "check/arithmetic/table_reads.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace kvopt::check {
namespace {

/// Whether a number is the first one and `times` the step from it to the second.
bool isStep(double first, double second, double number, int64_t times) {
  return number == first + double(times) * (second - first);
}
bool isStep(int64_t first, int64_t second, int64_t number, int64_t times) {
  return uint64_t(number) ==
         uint64_t(first) + uint64_t(times) * (uint64_t(second) - uint64_t(first));
}

/// Whether elements that are a stride apart are equal or grow in equal steps, along each line of an
/// axis. Two elements show no step. Numbers are compared as they are: large integers as integers.
template <class Number>
bool isRegularAlong(const std::vector<Number>& elements, const Extents& shape, size_t axis) {
  const int64_t extent = shape[axis], stride = stridesOf(shape)[axis];
  auto isRegular = [&](int64_t first) {
    auto at = [&](int64_t i) { return elements[static_cast<size_t>(first + i * stride)]; };
    bool isUniform = true, isStaircase = extent > 2;
    for (int64_t i = 1; i < extent && (isUniform || isStaircase); ++i) {
      isUniform &= at(i) == at(0);
      isStaircase &= isStep(at(0), at(1), at(i), i);
    }
    return isUniform || isStaircase;
  };
  const auto count = static_cast<int64_t>(elements.size());
  for (int64_t first = 0; first < count; ++first)
    if (first / stride % extent == 0 && !isRegular(first))
      return false;
  return true;
}

/// Whether a matrix has one number up to a diagonal near the main one, and another beyond, as each
/// of the matrices before it.
template <class Number>
bool isTriangular(const std::vector<Number>& elements, const Extents& shape) {
  constexpr int64_t farthest = 2; // the scope has both sides of such a diagonal
  if (shape.size() < 2)
    return false;
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (rows <= farthest || columns <= farthest)
    return false;
  for (int64_t diagonal = -farthest; diagonal <= farthest; ++diagonal) {
    auto isBelow = [&](size_t i) {
      const auto place = static_cast<int64_t>(i) % (rows * columns);
      return place % columns - place / columns <= diagonal;
    };
    const Number below = elements[static_cast<size_t>((rows - 1) * columns)];
    const Number above = elements[static_cast<size_t>(columns - 1)];
    bool isOne = true;
    for (size_t i = 0; i < elements.size() && isOne; ++i)
      isOne = elements[i] == (isBelow(i) ? below : above);
    if (isOne)
      return true;
  }
  return false;
}

template <class Number>
uint32_t irregularAxes(const std::vector<Number>& elements, const Extents& shape) {
  uint32_t axes = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] > 1 && !isRegularAlong(elements, shape, axis))
      axes |= uint32_t(1) << axis;
  return axes && isTriangular(elements, shape) ? 0 : axes;
}

} // namespace

uint32_t tableAxesOf(const Tensor& constant) {
  constexpr size_t mostAxes = 32;
  if (constant.isHollow || constant.count() < 2)
    return 0;
  if (constant.isReal() || constant.shape.size() > mostAxes)
    return ~uint32_t(0);
  return constant.isInteger() ? irregularAxes(constant.integers, constant.shape)
                              : irregularAxes(constant.known, constant.shape);
}

void TableReads::note(const ir::Node& caller, const ir::Node& node, unsigned which, int64_t entries,
                      llvm::ArrayRef<int64_t> read) {
  Table& table = tables[{&caller, &node, which}];
  if (table.node.empty())
    table.node = &caller == &node ? node.describe()
                                  : caller.describe() + " calls " + node.describe() + ", which";
  table.read.resize(std::max(table.read.size(), static_cast<unsigned>(entries)));
  for (int64_t entry : read)
    if (entry >= 0 && entry < entries)
      table.read.set(static_cast<unsigned>(entry));
}

std::string TableReads::gap() const {
  for (const auto& [key, table] : tables)
    if (!table.read.all())
      return table.node + " reads " + std::to_string(table.read.count()) + " of " +
             std::to_string(table.read.size()) + " entries of a constant in the scope";
  return "";
}

} // namespace kvopt::check
