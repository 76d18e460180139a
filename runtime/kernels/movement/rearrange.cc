// Operators that move elements according to a fixed map of positions: Transpose, Concat, Split,
// Slice, Expand, Tile.
//
// Versions: Transpose and Concat in every opset, Split from 2 (lengths are an attribute before 13,
// num_outputs from 18), Tile from 6, Expand from 8, Slice from 10 (before, it had attributes).
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/integer_input.h"

#include <cstring>
#include <numeric>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Copies matrices whose rows are columns in memory: the strides of the last two axes of `shape`
/// are 1 and a larger one. The parts of `across` columns in memory that it reads for some rows stay
/// in the cache; each row is written in one go.
template <class T>
void copyColumns(KernelContext& context, llvm::ArrayRef<int64_t> shape, const Extents& strides,
                 const T* source, T* out) {
  constexpr int64_t together = 64 / sizeof(T), across = 128;
  const int64_t rows = shape[shape.size() - 2], columns = shape.back(), step = strides.back();
  const llvm::ArrayRef<int64_t> outer = shape.drop_back(2);
  const int64_t strips = (columns - 1) / across + 1;
  context.parallelFor(product(outer) * strips, [&](int64_t unit) {
    const int64_t matrix = unit / strips, begin = unit % strips * across;
    const int64_t count = std::min(across, columns - begin);
    const T* in = source + begin * step;
    for (int64_t axis = static_cast<int64_t>(outer.size()) - 1, at = matrix; axis >= 0; --axis) {
      in += at % outer[static_cast<size_t>(axis)] * strides[static_cast<size_t>(axis)];
      at /= outer[static_cast<size_t>(axis)];
    }
    T* to = out + matrix * rows * columns + begin;
    for (int64_t top = 0; top < rows; top += together)
      for (int64_t row = top; row < std::min(top + together, rows); ++row)
        for (int64_t i = 0; i < count; ++i)
          to[row * columns + i] = in[i * step + row];
  });
}

/// y = the elements from `first` on, traversed by `strides` with the shape `shape`.
llvm::Error gatherStrided(KernelContext& context, unsigned result, const TensorView& x,
                          llvm::ArrayRef<int64_t> shape, const Extents& strides, int64_t first) {
  llvm::Expected<TensorView> y = context.output(result, x.element, shape);
  if (!y)
    return y.takeError();
  return dispatchWidth(context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    const T* source = x.as<T>() + first;
    T* out = y->as<T>();
    if (y->elementCount() != 0 && shape.size() >= 2 && strides.back() > 1 &&
        strides[strides.size() - 2] == 1) {
      copyColumns(context, shape, strides, source, out);
      return llvm::Error::success();
    }
    const StridedLoop<1> loop(shape, {strides});
    forElements(context, loop.count(), [&](int64_t begin, int64_t end) {
      copyRange(loop, begin, end, source, out + begin);
    });
    return llvm::Error::success();
  });
}

/// y[i(perm 0), i(perm 1), …] = x[i0, i1, …]; axes reversed without perm.
llvm::Error transpose(KernelContext& context) {
  const TensorView& x = context.in(0);
  Extents perm(x.rank());
  std::iota(perm.rbegin(), perm.rend(), 0);
  if (std::optional<llvm::ArrayRef<int64_t>> given = context.node().intsAttr("perm"))
    perm.assign(given->begin(), given->end());
  llvm::Expected<llvm::SmallVector<unsigned, 6>> axes = axesOf(context, perm, x.rank());
  if (!axes)
    return axes.takeError();
  if (axes->size() != x.rank())
    return context.error("perm must name every axis");
  Extents shape, strides;
  for (unsigned axis : *axes) {
    shape.push_back(x.shape[axis]);
    strides.push_back(x.strides[axis]);
  }
  return gatherStrided(context, 0, x, shape, strides, 0);
}

llvm::Error concat(KernelContext& context) {
  const TensorView& first = context.in(0);
  const int64_t axisAsked = context.node().intAttr("axis", context.opset() < 4 ? 1 : INT64_MAX);
  llvm::Expected<unsigned> axis = axisOf(context, axisAsked, first.rank());
  if (!axis)
    return axis.takeError();
  Extents shape = first.shape;
  for (unsigned operand = 1; operand < context.inputCount(); ++operand) {
    const TensorView& x = context.in(operand);
    if (x.element != first.element || x.rank() != first.rank())
      return context.error(formatted("operand {} differs in type or rank", operand));
    for (unsigned i = 0; i < x.rank(); ++i)
      if (i != *axis && x.shape[i] != first.shape[i])
        return context.error(formatted("operand {} has extent {} on axis {}, not {}", operand,
                                       x.shape[i], i, first.shape[i]));
    if (__builtin_add_overflow(shape[*axis], x.shape[*axis], &shape[*axis]))
      return context.error("the result is too large");
  }
  llvm::Expected<TensorView> y = context.output(0, first.element, shape);
  if (!y)
    return y.takeError();
  if (y->elementCount() == 0)
    return llvm::Error::success();
  llvm::ArrayRef<int64_t> extents = shape;
  const int64_t outer = product(extents.take_front(*axis));
  const int64_t pitch = y->byteSize() / outer;
  int64_t at = 0;
  for (unsigned operand = 0; operand < context.inputCount(); ++operand) {
    const TensorView& x = context.in(operand);
    const int64_t bytes = x.byteSize() / outer;
    for (int64_t row = 0; row < outer && bytes != 0; ++row)
      std::memcpy(y->data + row * pitch + at, x.data + row * bytes, static_cast<size_t>(bytes));
    at += bytes;
  }
  return llvm::Error::success();
}

/// Extents of the parts: `split` (an attribute before opset 13, then an operand), or equal parts
/// with a smaller last one.
llvm::Error split(KernelContext& context) {
  const TensorView& x = context.in(0);
  llvm::Expected<unsigned> axis = axisOf(context, context.node().intAttr("axis", 0), x.rank());
  if (!axis)
    return axis.takeError();
  const int64_t extent = x.shape[*axis];
  const int64_t parts = static_cast<int64_t>(context.node().results().size());
  if (parts == 0)
    return context.error("there are no results to split into");
  Extents sizes;
  if (context.opset() < 13) {
    if (std::optional<llvm::ArrayRef<int64_t>> given = context.node().intsAttr("split"))
      sizes.assign(given->begin(), given->end());
  } else if (context.has(1)) {
    llvm::Expected<Extents> given = integersOf(context, 1);
    if (!given)
      return given.takeError();
    sizes = std::move(*given);
  }
  if (sizes.empty()) {
    if (context.node().intAttr("num_outputs", parts) != parts)
      return context.error("num_outputs is not the number of results");
    if (context.opset() < 18 && extent % parts != 0)
      return context.error(
          formatted("extent {} does not split into {} equal parts", extent, parts));
    const int64_t each = extent / parts + (extent % parts != 0);
    for (int64_t part = 0, left = extent; part < parts; ++part, left -= sizes.back())
      sizes.push_back(std::min(each, left));
  }
  int64_t total = 0;
  for (int64_t size : sizes)
    if (size < 0 || __builtin_add_overflow(total, size, &total))
      return context.error("the parts have bad extents");
  if (static_cast<int64_t>(sizes.size()) != parts || total != extent)
    return context.error(formatted("{} parts of {} in all do not make {} results of {}",
                                   sizes.size(), total, parts, extent));
  int64_t start = 0;
  for (unsigned part = 0; part < sizes.size(); start += sizes[part], ++part) {
    if (!context.wants(part))
      continue;
    Extents shape = x.shape;
    shape[*axis] = sizes[part];
    if (llvm::Error error = gatherStrided(context, part, x, shape, x.strides,
                                          sizes[part] == 0 ? 0 : start * x.strides[*axis]))
      return error;
  }
  return llvm::Error::success();
}

/// Negative starts and ends count from the end, and both are clamped, as in Python, except for
/// starts before the first element with a negative step.
llvm::Error slice(KernelContext& context) {
  const TensorView& x = context.in(0);
  Extents lists[4];
  for (unsigned operand = 1; operand <= 4; ++operand)
    if (context.has(operand)) {
      llvm::Expected<Extents> list = integersOf(context, operand);
      if (!list)
        return list.takeError();
      lists[operand - 1] = std::move(*list);
    }
  auto& [starts, ends, listedAxes, steps] = lists;
  if (!context.has(3)) {
    listedAxes.resize(starts.size());
    std::iota(listedAxes.begin(), listedAxes.end(), 0);
  }
  if (!context.has(4))
    steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || listedAxes.size() != starts.size() ||
      steps.size() != starts.size())
    return context.error("starts, ends, axes and steps differ in length");
  llvm::Expected<llvm::SmallVector<unsigned, 6>> axes = axesOf(context, listedAxes, x.rank());
  if (!axes)
    return axes.takeError();

  Extents shape = x.shape;
  Extents strides = x.strides;
  int64_t first = 0;
  for (size_t i = 0; i < axes->size(); ++i) {
    const unsigned axis = (*axes)[i];
    const int64_t extent = x.shape[axis];
    const int64_t step = steps[i];
    if (step == 0)
      return context.error("a step is 0");
    auto clamp = [&](int64_t at, int64_t low, int64_t high) {
      return std::clamp(at < 0 ? std::max(at, -extent - 1) + extent : at, low, high);
    };
    // A start before the first element becomes the first one, even if the step is negative.
    const int64_t least = step > 0 || extent > 0 ? 0 : -1;
    const int64_t start = clamp(starts[i], least, step > 0 ? extent : extent - 1);
    const int64_t end = step > 0 ? clamp(ends[i], 0, extent) : clamp(ends[i], -1, extent - 1);
    const int64_t span = step > 0 ? end - start : start - end;
    const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
    shape[axis] =
        span <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride) + 1;
    if (shape[axis] > 0) {
      first += start * x.strides[axis];
      strides[axis] = shape[axis] == 1 ? 0 : x.strides[axis] * step;
    }
  }
  return gatherStrided(context, 0, x, shape, strides, first);
}

/// Broadcasts x to the larger of its shape and the requested shape.
llvm::Error expand(KernelContext& context) {
  const TensorView& x = context.in(0);
  llvm::Expected<Extents> asked = integersOf(context, 1);
  if (!asked)
    return asked.takeError();
  llvm::Expected<int64_t> count = countOf(context, *asked);
  if (!count)
    return count.takeError();
  llvm::Expected<Extents> shape = broadcastShape(context, x.shape, *asked);
  if (!shape)
    return shape.takeError();
  return gatherStrided(context, 0, x, *shape, broadcastStrides(x, *shape), 0);
}

/// y[i] = x[i mod extent] on every axis.
llvm::Error tile(KernelContext& context) {
  const TensorView& x = context.in(0);
  llvm::Expected<Extents> repeats = integersOf(context, 1);
  if (!repeats)
    return repeats.takeError();
  if (repeats->size() != x.rank())
    return context.error(formatted("{} repeats for rank {}", repeats->size(), x.rank()));
  // Each axis of the result is a pair [repeat, extent], where repeat has stride 0.
  Extents shape, split, strides;
  for (unsigned axis = 0; axis < x.rank(); ++axis) {
    int64_t extent = 0;
    if ((*repeats)[axis] < 0 || __builtin_mul_overflow((*repeats)[axis], x.shape[axis], &extent))
      return context.error(formatted("bad repeat {}", (*repeats)[axis]));
    shape.push_back(extent);
    split.append({(*repeats)[axis], x.shape[axis]});
    strides.append({0, x.strides[axis]});
  }
  llvm::Expected<TensorView> y = context.output(0, x.element, shape);
  if (!y)
    return y.takeError();
  return dispatchWidth(context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    copyStrided(split, strides, x.as<T>(), y->as<T>());
    return llvm::Error::success();
  });
}

} // namespace

void register_rearrange(KernelRegistry& registry) {
  registry.add("Transpose", 1, transpose);
  registry.add("Concat", 1, concat);
  registry.add("Split", 2, split);
  registry.add("Slice", 10, slice);
  registry.add("Expand", 8, expand);
  registry.add("Tile", 6, tile);
}

} // namespace kvopt::kernels
