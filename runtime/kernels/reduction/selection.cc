// Operators that search for elements:
//
//   ArgMax, ArgMin   index of the largest or smallest element of an axis: the first of equal ones,
//                    or the last with select_last_index; a NaN counts as the extreme
//   TopK             the k largest (smallest) elements of an axis, in order, and their indices; the
//                    first of equal ones
//   NonZero          y[d, n] = coordinate d of the n-th element that is not 0
//   OneHot           values[1] at the index along a new axis, values[0] elsewhere; an index outside
//                    of [-depth, depth) selects no position
//
// Versions: ArgMax and ArgMin in every opset (select_last_index from 12), TopK in every opset (k is
// an attribute before 10; largest and sorted from 11), NonZero and OneHot from 9.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/integer_input.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Lines of a tensor along one axis.
struct Lines {
  int64_t count = 0, length = 0, stride = 0;

  Lines(const TensorView& x, unsigned axis)
      : count(x.shape[axis] == 0 ? 0 : x.elementCount() / x.shape[axis]), length(x.shape[axis]),
        stride(x.strides[axis]) {}
  int64_t start(int64_t line) const { return line / stride * stride * length + line % stride; }
};

template <class V> bool isNan(V value) {
  if constexpr (std::is_floating_point_v<V>)
    return std::isnan(value);
  else
    return false;
}

/// Whether `a` precedes `b` in the order of largest (or smallest) first.
template <class V> bool precedes(V a, V b, bool largest) {
  if (isNan(a) || isNan(b))
    return isNan(a) && !isNan(b);
  return largest ? a > b : a < b;
}

template <bool largest> llvm::Error argExtreme(KernelContext& context) {
  const TensorView& x = context.in(0);
  auto axis = axisOf(context, context.node().intAttr("axis", 0), x.rank());
  if (!axis)
    return axis.takeError();
  Extents shape = x.shape;
  if (context.node().intAttr("keepdims", 1) != 0)
    shape[*axis] = 1;
  else
    shape.erase(shape.begin() + *axis);
  if (x.shape[*axis] == 0)
    return context.error("an axis without elements has no extreme");
  auto y = context.output(0, ElementType::Int64, shape);
  if (!y)
    return y.takeError();
  const bool last = context.node().intAttr("select_last_index", 0) != 0;
  return dispatch(NumericTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    const Lines lines(x, *axis);
    for (int64_t line = 0; line < lines.count; ++line) {
      const T* from = x.as<T>() + lines.start(line);
      int64_t best = 0;
      for (int64_t i = 1; i < lines.length; ++i) {
        const auto found = load(from[best * lines.stride]);
        const auto value = load(from[i * lines.stride]);
        if (precedes(value, found, largest) || (last && !precedes(found, value, largest)))
          best = i;
      }
      y->template as<int64_t>()[line] = best;
    }
    return llvm::Error::success();
  });
}

llvm::Error topK(KernelContext& context) {
  const TensorView& x = context.in(0);
  const Node& node = context.node();
  auto axis = axisOf(context, node.intAttr("axis", -1), x.rank());
  if (!axis)
    return axis.takeError();
  auto k =
      context.opset() < 10 ? llvm::Expected<int64_t>(node.intAttr("k", -1)) : integerOf(context, 1);
  if (!k)
    return k.takeError();
  if (*k < 0 || *k > x.shape[*axis])
    return context.error(formatted("{} of {} elements", *k, x.shape[*axis]));
  Extents shape = x.shape;
  shape[*axis] = *k;
  const bool wantsValues = context.wants(0);
  const bool wantsIndices = context.wants(1);
  TensorView values, indices;
  if (wantsValues) {
    auto made = context.output(0, x.element, shape);
    if (!made)
      return made.takeError();
    values = *made;
  }
  if (wantsIndices) {
    auto made = context.output(1, ElementType::Int64, shape);
    if (!made)
      return made.takeError();
    indices = *made;
  }
  const bool largest = node.intAttr("largest", 1) != 0;
  return dispatch(NumericTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    const Lines lines(x, *axis);
    std::vector<int64_t> order(static_cast<size_t>(lines.length));
    for (int64_t line = 0; line < lines.count && *k != 0; ++line) {
      const T* from = x.as<T>() + lines.start(line);
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + *k, order.end(), [&](int64_t a, int64_t b) {
        const auto left = load(from[a * lines.stride]);
        const auto right = load(from[b * lines.stride]);
        if (precedes(left, right, largest))
          return true;
        return !precedes(right, left, largest) && a < b;
      });
      const int64_t start = line / lines.stride * lines.stride * *k + line % lines.stride;
      for (int64_t i = 0; i < *k; ++i) {
        if (wantsValues)
          values.as<T>()[start + i * lines.stride] =
              from[order[static_cast<size_t>(i)] * lines.stride];
        if (wantsIndices)
          indices.as<int64_t>()[start + i * lines.stride] = order[static_cast<size_t>(i)];
      }
    }
    return llvm::Error::success();
  });
}

llvm::Error nonZero(KernelContext& context) {
  const TensorView& x = context.in(0);
  const int64_t count = x.elementCount();
  return dispatch(NumericAndBoolTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    auto isZero = [&](int64_t i) { return load(x.as<T>()[i]) == ArithmeticType<T>(0); };
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i)
      found += isZero(i) ? 0 : 1;
    // A scalar counts as a list of one element.
    const auto rank = static_cast<int64_t>(std::max(x.rank(), 1u));
    auto y = context.output(0, ElementType::Int64, {rank, found});
    if (!y)
      return y.takeError();
    int64_t column = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (isZero(i))
        continue;
      int64_t rest = i;
      for (unsigned axis = x.rank(); axis > 0; --axis) {
        y->template as<int64_t>()[(axis - 1) * found + column] = rest % x.shape[axis - 1];
        rest /= x.shape[axis - 1];
      }
      if (x.rank() == 0)
        y->template as<int64_t>()[column] = 0;
      ++column;
    }
    return llvm::Error::success();
  });
}

/// Indices as integers; floating-point indices are truncated.
llvm::Expected<Extents> hotIndices(KernelContext& context, unsigned operand) {
  const TensorView& given = context.in(operand);
  if (!isFloatingPoint(given.element))
    return integersOf(context, operand);
  Extents indices;
  llvm::Error error = dispatch(FloatTypes(), context, given.element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (int64_t i = 0; i < given.elementCount(); ++i) {
      const auto value = static_cast<double>(load(given.as<T>()[i]));
      indices.push_back(std::abs(value) < 0x1p62 ? static_cast<int64_t>(value) : INT64_MIN);
    }
    return llvm::Error::success();
  });
  if (error)
    return error;
  return indices;
}

llvm::Error oneHot(KernelContext& context) {
  const TensorView& positions = context.in(0);
  const TensorView& values = context.in(2);
  auto depths = hotIndices(context, 1);
  if (!depths)
    return depths.takeError();
  if (depths->size() != 1 || depths->front() < 0 || values.elementCount() != 2)
    return context.error("depth must be one number that is not negative, and values must be two");
  const int64_t depth = depths->front();
  auto axis = axisOf(context, context.node().intAttr("axis", -1), positions.rank() + 1);
  if (!axis)
    return axis.takeError();
  auto indices = hotIndices(context, 0);
  if (!indices)
    return indices.takeError();
  Extents shape = positions.shape;
  shape.insert(shape.begin() + *axis, depth);
  auto y = context.output(0, values.element, shape);
  if (!y)
    return y.takeError();
  const int64_t stride = y->strides[*axis];
  return dispatchWidth(context, values.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    T* out = y->as<T>();
    std::fill_n(out, y->elementCount(), values.as<T>()[0]);
    if (y->elementCount() == 0)
      return llvm::Error::success();
    for (size_t i = 0; i < indices->size(); ++i) {
      const int64_t index = (*indices)[i];
      if (index < -depth || index >= depth)
        continue;
      const auto line = static_cast<int64_t>(i);
      const int64_t start = line / stride * stride * depth + line % stride;
      out[start + (index < 0 ? index + depth : index) * stride] = values.as<T>()[1];
    }
    return llvm::Error::success();
  });
}

} // namespace

void register_selection(KernelRegistry& registry) {
  registry.add("ArgMax", 1, argExtreme<true>);
  registry.add("ArgMin", 1, argExtreme<false>);
  registry.add("TopK", 1, topK);
  registry.add("NonZero", 9, nonZero);
  registry.add("OneHot", 9, oneHot);
}

} // namespace kvopt::kernels
