// Pad: adds `pads[a]` elements before and `pads[n + a]` elements after x on axis a; negative
// numbers remove elements. The mode determines new elements: constant, a value; edge, the nearest
// element; reflect, x mirrored at its first and last element; wrap, x repeated.
//
// Versions: pads and value are attributes in opsets 2 to 10, operands from 11; axes from 18, the
// mode wrap from 19.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/integer_input.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

enum class Mode { Constant, Edge, Reflect, Wrap };

llvm::Expected<Mode> modeOf(const KernelContext& context) {
  const llvm::StringRef name = context.node().stringAttr("mode", "constant");
  if (name == "constant")
    return Mode::Constant;
  if (name == "edge")
    return Mode::Edge;
  if (name == "reflect")
    return Mode::Reflect;
  if (name == "wrap")
    return Mode::Wrap;
  return context.error(formatted("mode '{}' is not known", name.str()));
}

struct Pads {
  Extents before, after; ///< for each axis
};

llvm::Expected<Pads> padsOf(KernelContext& context, unsigned rank) {
  Extents given;
  if (context.opset() < 11) {
    if (auto attribute = context.node().intsAttr("pads"))
      given.assign(attribute->begin(), attribute->end());
  } else {
    auto operand = integersOf(context, 1);
    if (!operand)
      return operand.takeError();
    given = std::move(*operand);
  }
  Extents listed(rank);
  std::iota(listed.begin(), listed.end(), 0);
  if (context.has(3)) {
    auto operand = integersOf(context, 3);
    if (!operand)
      return operand.takeError();
    listed = std::move(*operand);
  }
  auto axes = axesOf(context, listed, rank);
  if (!axes)
    return axes.takeError();
  if (given.size() != 2 * axes->size())
    return context.error(formatted("{} pads for {} axes", given.size(), axes->size()));
  constexpr int64_t most = int64_t{1} << 48;
  for (int64_t amount : given)
    if (amount < -most || amount > most)
      return context.error(formatted("a pad of {}", amount));
  Pads pads{Extents(rank, 0), Extents(rank, 0)};
  for (size_t i = 0; i < axes->size(); ++i) {
    pads.before[(*axes)[i]] = given[i];
    pads.after[(*axes)[i]] = given[axes->size() + i];
  }
  return pads;
}

/// Index that position `index` of the result reads from an axis with `extent` elements; -1 for
/// none.
int64_t sourceOf(Mode mode, int64_t index, int64_t extent) {
  if (index >= 0 && index < extent)
    return index;
  switch (mode) {
  case Mode::Constant:
    return -1;
  case Mode::Edge:
    return std::clamp<int64_t>(index, 0, extent - 1);
  case Mode::Wrap:
    return (index % extent + extent) % extent;
  case Mode::Reflect: {
    if (extent == 1)
      return 0;
    const int64_t period = 2 * (extent - 1);
    const int64_t place = (index % period + period) % period;
    return place < extent ? place : period - place;
  }
  }
  return -1;
}

llvm::Error pad(KernelContext& context) {
  const TensorView& x = context.in(0);
  auto mode = modeOf(context);
  if (!mode)
    return mode.takeError();
  auto pads = padsOf(context, x.rank());
  if (!pads)
    return pads.takeError();
  Extents shape = x.shape;
  for (unsigned axis = 0; axis < x.rank(); ++axis) {
    if (__builtin_add_overflow(shape[axis], pads->before[axis], &shape[axis]) ||
        __builtin_add_overflow(shape[axis], pads->after[axis], &shape[axis]) || shape[axis] < 0)
      return context.error(formatted("axis {} cannot be padded by {} and {}", axis,
                                     pads->before[axis], pads->after[axis]));
    if (*mode != Mode::Constant && x.shape[axis] == 0 && shape[axis] != 0)
      return context.error(formatted("axis {} has no element to repeat", axis));
  }
  const TensorView* fill = context.opset() < 11 ? nullptr : context.input(2);
  if (fill && (fill->elementCount() != 1 || fill->element != x.element))
    return context.error("constant_value must be one element of the operand's type");
  const float fillAttribute = context.opset() < 11 ? context.node().floatAttr("value", 0.0f) : 0.0f;
  if (fillAttribute != 0.0f && x.element != ElementType::Float)
    return context.error("a value other than 0 needs an operand of floats");
  auto y = context.output(0, x.element, shape);
  if (!y)
    return y.takeError();
  const int64_t count = y->elementCount();
  if (count == 0)
    return llvm::Error::success();
  // For each position of an axis: the element that it reads, times the stride of the axis.
  std::vector<Extents> sources(x.rank());
  for (unsigned axis = 0; axis < x.rank(); ++axis)
    for (int64_t i = 0; i < shape[axis]; ++i) {
      const int64_t source = sourceOf(*mode, i - pads->before[axis], x.shape[axis]);
      sources[axis].push_back(source < 0 ? -1 : source * x.strides[axis]);
    }
  return dispatchWidth(context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    T value{};
    if (fill)
      value = *fill->as<T>();
    else if (sizeof(T) == sizeof fillAttribute)
      std::memcpy(static_cast<void*>(&value), &fillAttribute, sizeof fillAttribute);
    Extents index(x.rank(), 0);
    for (int64_t position = 0; position < count; ++position) {
      int64_t offset = 0;
      for (unsigned axis = 0; axis < x.rank() && offset >= 0; ++axis) {
        const int64_t source = sources[axis][static_cast<size_t>(index[axis])];
        offset = source < 0 ? -1 : offset + source;
      }
      y->as<T>()[position] = offset < 0 ? value : x.as<T>()[offset];
      for (unsigned axis = x.rank(); axis > 0 && ++index[axis - 1] == shape[axis - 1]; --axis)
        index[axis - 1] = 0;
    }
    return llvm::Error::success();
  });
}

} // namespace

void register_pad(KernelRegistry& registry) { registry.add("Pad", 2, pad); }

} // namespace kvopt::kernels
