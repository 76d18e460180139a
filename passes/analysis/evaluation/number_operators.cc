// Numbers of nodes, by the definitions of their operators.
#include "passes/analysis/evaluation/number_operators.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "meaning/numbers/element_access.h"
#include "meaning/numbers/node_numbers.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Most pairs of an element of a result and one of an operand, where each may read each.
constexpr double mostReads = 1 << 24;

/// Integers have 64 bits in memory and floats are doubles, whatever their type: they do not wrap
/// and are not rounded before the result is known.
ElementType typeInMemory(ElementType type) {
  return isInteger(type) ? ElementType::Int64 : isFloatingPoint(type) ? ElementType::Double : type;
}

meaning::StoredArray stored(const NumberTensor& tensor, ElementType type) {
  meaning::StoredArray array(typeInMemory(type), tensor.extents);
  if (isFloatingPoint(type)) {
    meaning::storeReals(array.type, array.bytes.data(), 0, tensor.numbers.data(), array.count);
    return array;
  }
  std::vector<int64_t> integers(array.count);
  llvm::transform(tensor.numbers, integers.begin(), [](double number) {
    return number < 0x1p63 ? static_cast<int64_t>(number) : std::numeric_limits<int64_t>::max();
  });
  meaning::storeIntegers(array.type, array.bytes.data(), 0, integers.data(), array.count);
  return array;
}

std::unique_ptr<NumberTensor> loaded(const meaning::StoredArray& array) {
  auto tensor = std::make_unique<NumberTensor>();
  tensor->extents = array.extents;
  tensor->numbers.resize(array.count);
  std::vector<int64_t> places(array.count), integers(array.count);
  std::iota(places.begin(), places.end(), 0);
  if (isFloatingPoint(array.type)) {
    meaning::loadReals(array.type, array.data, places.data(), array.count, tensor->numbers.data());
  } else {
    meaning::loadIntegers(array.type, array.data, places.data(), array.count, integers.data());
    llvm::copy(integers, tensor->numbers.begin());
  }
  return tensor;
}

/// The number as the element type holds it: rounded, or truncated to an integer. Clears `ok` for an
/// integer that is not exact, or that would wrap.
double heldBy(ElementType type, double number, bool& ok) {
  if (type == ElementType::Float)
    return static_cast<double>(static_cast<float>(number));
  if (!isInteger(type))
    return number;
  const double held = std::trunc(number);
  const auto bits = static_cast<int>(bitWidth(type).value_or(0));
  const double end = std::ldexp(1.0, isUnsigned(type) ? bits : bits - 1);
  if (!isExact(held) || held >= end || held < (isUnsigned(type) ? 0 : -end))
    ok = false;
  return held;
}

/// Whether integers of the operands may give one that 64 bits do not hold, or are not exact, or are
/// divided by 0.
bool mayOverflow(const Node& node, llvm::ArrayRef<const NumberTensor*> operands) {
  const auto function = elementFunction(node);
  double largest = 1, count = 1;
  unsigned inexact = 0;
  for (auto [use, tensor] : llvm::zip(node.operands(), operands)) {
    if (!tensor || !isInteger(use.value()->type().elementType()))
      continue;
    double own = 0;
    for (double number : tensor->numbers)
      own = std::max(own, std::abs(number));
    if (function == ElementFunction::Quotient && tensor == operands.back() &&
        llvm::is_contained(tensor->numbers, 0))
      return true;
    inexact += isExact(own) ? 0 : 1;
    largest = std::max(largest, own);
    count += static_cast<double>(tensor->numbers.size());
  }
  if (function == ElementFunction::Bound || function == ElementFunction::Comparison)
    return inexact > 1;
  if (!isInteger(node.result().type().elementType()))
    return false;
  // Sums of products of two numbers, or of one of each operand, but for these.
  auto factors = std::max(2.0, static_cast<double>(operands.size()));
  if (function == ElementFunction::Sum || function == ElementFunction::Quotient)
    factors = 1;
  else if (node.is("Pow") || node.is("ReduceProd") || node.is("CumProd"))
    factors = node.is("Pow") ? largest : count;
  constexpr double mostBits = 60;
  return inexact > 0 || function == ElementFunction::Bits ||
         factors * std::log2(largest) + std::log2(count) > mostBits;
}

/// The operands of a node at a point. All numbers are wanted, or those that extents may depend on.
struct OperandsAtPoint {
  std::vector<meaning::StoredArray> arrays;
  std::vector<const meaning::Array*> pointers; ///< null for absent operands
  std::vector<const NumberTensor*> tensors;    ///< null where numbers are not read, or not known
  bool isKnown = true;

  OperandsAtPoint(const Node& node, Evaluation& evaluation, bool areNumbers)
      : arrays(node.operands().size()), pointers(arrays.size()), tensors(arrays.size()) {
    const bool readsExtents = node.is("Shape") || node.is("Size") || node.is("EyeLike");
    for (unsigned i = 0; i < arrays.size() && isKnown; ++i) {
      const Value* value = node.operand(i);
      if (!value)
        continue;
      const ElementType type = value->type().elementType();
      pointers[i] = &arrays[i];
      arrays[i].type = typeInMemory(type);
      if (i == 1 && node.is("CastLike"))
        continue;
      const bool isRead = !readsExtents && (areNumbers || !isFloatingPoint(type));
      tensors[i] = isRead ? evaluation.numbers(*value) : nullptr;
      const bool needsExtents = !tensors[i] && !(isRead && areNumbers);
      const Extents* extents = needsExtents ? evaluation.extents(*value) : nullptr;
      if (tensors[i])
        arrays[i] = stored(*tensors[i], type);
      else if (extents)
        arrays[i].extents = *extents;
      else
        isKnown = false;
    }
  }
};

} // namespace

std::optional<llvm::SmallVector<unsigned, 4>> reducedAxes(const Node& node, size_t rank,
                                                          Evaluation& evaluation) {
  llvm::SmallVector<unsigned, 4> axes;
  llvm::SmallVector<int64_t, 4> given;
  if (const auto written = node.intsAttr("axes")) {
    given.assign(written->begin(), written->end());
  } else if (const Value* list = node.operand(1)) {
    const NumberTensor* numbers = evaluation.numbers(*list);
    if (!numbers)
      return std::nullopt;
    for (double number : numbers->numbers)
      given.push_back(static_cast<int64_t>(number));
  }
  if (given.empty() && node.intAttr("noop_with_empty_axes", 0) == 0)
    for (size_t axis = 0; axis < rank; ++axis)
      given.push_back(static_cast<int64_t>(axis));
  for (int64_t axis : given) {
    const auto placed = normalizedAxis(axis, unsigned(rank));
    if (!placed)
      return std::nullopt;
    axes.push_back(*placed);
  }
  llvm::sort(axes);
  return axes;
}

std::unique_ptr<NumberTensor> numbersFrom(const Value& value, Evaluation& evaluation) {
  const Node& node = *value.producer();
  const OperandsAtPoint operands(node, evaluation, true);
  if (!operands.isKnown || mayOverflow(node, operands.tensors))
    return nullptr;
  size_t most = 1;
  for (const meaning::StoredArray& operand : operands.arrays)
    most = std::max(most, operand.count);
  const auto limit = static_cast<double>(mostNumbers);
  const auto made = meaning::computeResult(
      node, value.resultIndex(), operands.pointers,
      elementFunction(node) ? limit : std::min(limit, mostReads / static_cast<double>(most)));
  auto result = made ? loaded(*made) : nullptr;
  const ElementType type = value.type().elementType();
  const bool converts = isInteger(type) && movementKind(node) == MovementKind::Convert;
  bool ok = true;
  for (size_t e = 0; result && e < result->numbers.size(); ++e) {
    double& number = result->numbers[e];
    number = heldBy(type, number, ok);
    ok = ok && (!converts || number == std::trunc(operands.tensors[0]->numbers[e]));
  }
  return ok ? std::move(result) : nullptr;
}

std::optional<Extents> definedExtents(const Value& value, Evaluation& evaluation) {
  const Node& node = *value.producer();
  const OperandsAtPoint operands(node, evaluation, false);
  return operands.isKnown ? meaning::computeExtents(node, value.resultIndex(), operands.pointers)
                          : std::nullopt;
}

bool isReduction(const Node& node) {
  return node.is("ReduceSum") || node.is("ReduceMean") || node.is("ReduceProd") ||
         node.is("ReduceMax") || node.is("ReduceMin");
}

} // namespace kvopt::analysis
