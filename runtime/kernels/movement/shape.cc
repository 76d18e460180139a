// Operators that only read or change a shape: Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze,
// Identity.
//
// Versions: every opset, Reshape from 5. Axes of Squeeze and Unsqueeze are an attribute before 13
// and an operand since; start and end of Shape from 15, allowzero of Reshape from 14.
#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Extents of axes [start, end). Both count from the end if negative, and are clamped to the rank.
llvm::Error shape(KernelContext& context) {
  const TensorView& x = context.in(0);
  const int64_t rank = x.rank();
  auto clamp = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? std::max(axis, -rank) + rank : axis, 0, rank);
  };
  const int64_t start = clamp(context.node().intAttr("start", 0));
  const int64_t end = std::max(start, clamp(context.node().intAttr("end", rank)));
  llvm::Expected<TensorView> y = context.output(0, ElementType::Int64, {end - start});
  if (!y)
    return y.takeError();
  std::copy(x.shape.begin() + start, x.shape.begin() + end, y->as<int64_t>());
  return llvm::Error::success();
}

llvm::Error size(KernelContext& context) {
  llvm::Expected<TensorView> y = context.output(0, ElementType::Int64, {});
  if (!y)
    return y.takeError();
  *y->as<int64_t>() = context.in(0).elementCount();
  return llvm::Error::success();
}

llvm::Error identity(KernelContext& context) {
  return context.outputView(0, 0, context.in(0).shape);
}

/// 0 copies the input's extent at the same index (with allowzero: is an extent of 0); a single -1
/// is inferred.
llvm::Error reshape(KernelContext& context) {
  const TensorView& x = context.in(0);
  const bool allowZero = context.node().intAttr("allowzero", 0) != 0;
  llvm::Expected<Extents> target = integersOf(context, 1);
  if (!target)
    return target.takeError();
  const Extents wanted = *target;
  const auto asked = [&] { return formatted("[{}]", joinedText(wanted, ", ")); };
  std::optional<size_t> inferred;
  for (size_t axis = 0; axis < target->size(); ++axis) {
    int64_t& extent = (*target)[axis];
    if (extent == 0 && !allowZero) {
      if (axis >= x.rank())
        return context.error(formatted("target {}: axis {} is not in the input", asked(), axis));
      extent = x.shape[axis];
    } else if (extent == -1 && !inferred) {
      inferred = axis;
      extent = 1;
    } else if (extent < 0) {
      return context.error(formatted("target {} has a bad extent", asked()));
    }
  }
  llvm::Expected<int64_t> count = countOf(context, *target);
  if (!count)
    return count.takeError();
  const int64_t elements = x.elementCount();
  if (inferred) {
    if (*count == 0 || elements % *count != 0)
      return context.error(
          formatted("target {}: -1 cannot be inferred for {} elements", asked(), elements));
    (*target)[*inferred] = elements / *count;
    count = elements;
  }
  if (*count != elements)
    return context.error(formatted("target {} does not hold {} elements", asked(), elements));
  return context.outputView(0, 0, *target);
}

/// [d0, …] → [d0 ⋯ d(axis-1), d(axis) ⋯]; axis may equal the rank.
llvm::Error flatten(KernelContext& context) {
  const TensorView& x = context.in(0);
  const int64_t rank = x.rank();
  int64_t axis = context.node().intAttr("axis", 1);
  if (axis < -rank || axis > rank)
    return context.error(formatted("axis {} is out of range for rank {}", axis, rank));
  axis += axis < 0 ? rank : 0;
  llvm::ArrayRef<int64_t> extents = x.shape;
  llvm::Expected<int64_t> rows = countOf(context, extents.take_front(axis));
  if (!rows)
    return rows.takeError();
  llvm::Expected<int64_t> columns = countOf(context, extents.drop_front(axis));
  if (!columns)
    return columns.takeError();
  return context.outputView(0, 0, {*rows, *columns});
}

/// Axes of Squeeze and Unsqueeze: an attribute before opset 13, then an operand.
llvm::Expected<std::optional<Extents>> listedAxes(KernelContext& context) {
  if (context.opset() < 13) {
    std::optional<llvm::ArrayRef<int64_t>> axes = context.node().intsAttr("axes");
    return axes ? std::optional(Extents(axes->begin(), axes->end())) : std::nullopt;
  }
  if (!context.has(1))
    return std::optional<Extents>();
  llvm::Expected<Extents> axes = integersOf(context, 1);
  if (!axes)
    return axes.takeError();
  return std::optional(std::move(*axes));
}

/// Without axes, removes every axis of extent 1.
llvm::Error squeeze(KernelContext& context) {
  const TensorView& x = context.in(0);
  llvm::Expected<std::optional<Extents>> listed = listedAxes(context);
  if (!listed)
    return listed.takeError();
  llvm::SmallVector<bool, 6> drop(x.rank(), false);
  if (*listed) {
    llvm::Expected<llvm::SmallVector<unsigned, 6>> axes = axesOf(context, **listed, x.rank());
    if (!axes)
      return axes.takeError();
    for (unsigned axis : *axes) {
      if (x.shape[axis] != 1)
        return context.error(formatted("axis {} has extent {}, not 1", axis, x.shape[axis]));
      drop[axis] = true;
    }
  }
  Extents result;
  for (unsigned axis = 0; axis < x.rank(); ++axis)
    if (*listed ? !drop[axis] : x.shape[axis] != 1)
      result.push_back(x.shape[axis]);
  return context.outputView(0, 0, result);
}

/// Axes are indices in the result.
llvm::Error unsqueeze(KernelContext& context) {
  const TensorView& x = context.in(0);
  llvm::Expected<std::optional<Extents>> listed = listedAxes(context);
  if (!listed)
    return listed.takeError();
  if (!*listed)
    return context.error("the axes are missing");
  const unsigned rank = x.rank() + (*listed)->size();
  llvm::Expected<llvm::SmallVector<unsigned, 6>> axes = axesOf(context, **listed, rank);
  if (!axes)
    return axes.takeError();
  Extents result(rank, -1);
  for (unsigned axis : *axes)
    result[axis] = 1;
  const int64_t* next = x.shape.begin();
  for (int64_t& extent : result)
    if (extent == -1)
      extent = *next++;
  return context.outputView(0, 0, result);
}

} // namespace

void register_shape(KernelRegistry& registry) {
  registry.add("Shape", 1, shape);
  registry.add("Size", 1, size);
  registry.add("Identity", 1, identity);
  registry.add("Reshape", 5, reshape);
  registry.add("Flatten", 1, flatten);
  registry.add("Squeeze", 1, squeeze);
  registry.add("Unsqueeze", 1, unsqueeze);
}

} // namespace kvopt::kernels
