// Conv over any number of spatial axes:
//
//   Y[b,m,o…] = B[m] + sum over c, k… of W[m,c,k…] X[b, g * (C/group) + c, o * stride + k *
//   dilation
//               - pad…]          g = m / (M/group); positions outside of X count 0
//
// f32 sums for 16-bit operands, double ones for f32.
//
// Versions: every opset.
#include "runtime/element_dispatch.h"
#include "runtime/integer_input.h"

namespace kvopt {
namespace {

struct Axis {
  int64_t input = 0, kernel = 0, output = 0;
  int64_t stride = 1, dilation = 1, padBegin = 0, padEnd = 0;
};

constexpr int64_t largest = int64_t{1} << 31;

llvm::Error outputExtent(const KernelContext& context, llvm::StringRef automatic, Axis& axis) {
  if (axis.input > largest || axis.kernel < 1 || axis.kernel > largest || axis.stride < 1 ||
      axis.stride > largest || axis.dilation < 1 || axis.dilation > largest / axis.kernel ||
      axis.padBegin < 0 || axis.padBegin > largest || axis.padEnd < 0 || axis.padEnd > largest)
    return context.error("an extent, stride, dilation or pad out of range");
  const int64_t reach = axis.dilation * (axis.kernel - 1) + 1;
  if (automatic.startswith("SAME")) {
    axis.output = (axis.input + axis.stride - 1) / axis.stride;
    const int64_t pads = std::max<int64_t>(0, (axis.output - 1) * axis.stride + reach - axis.input);
    axis.padBegin = automatic == "SAME_UPPER" ? pads / 2 : pads - pads / 2;
    return llvm::Error::success();
  }
  const int64_t span = axis.input + axis.padBegin + axis.padEnd - reach;
  if (span < 0)
    return context.error(fmt::format("a kernel that reaches over {} elements of {}", reach,
                                     axis.input + axis.padBegin + axis.padEnd));
  axis.output = span / axis.stride + 1;
  return llvm::Error::success();
}

llvm::Expected<llvm::SmallVector<Axis, 3>> spatialAxes(KernelContext& context) {
  const TensorView& x = context.in(0);
  const TensorView& w = context.in(1);
  const Node& node = context.node();
  const size_t count = x.rank() - 2;
  const llvm::StringRef automatic = node.stringAttr("auto_pad", "NOTSET");
  if (automatic != "NOTSET" && automatic != "VALID" && automatic != "SAME_UPPER" &&
      automatic != "SAME_LOWER")
    return context.error(fmt::format("auto_pad '{}' is not known", automatic.str()));
  auto numbers = [&](const char* name, size_t size, int64_t otherwise) -> llvm::Expected<Extents> {
    auto given = node.intsAttr(name);
    if (given && given->size() != size)
      return context.error(fmt::format("{} numbers of {} for {}", given->size(), name, size));
    return given ? Extents(given->begin(), given->end()) : Extents(size, otherwise);
  };
  auto strides = numbers("strides", count, 1);
  if (!strides)
    return strides.takeError();
  auto dilations = numbers("dilations", count, 1);
  if (!dilations)
    return dilations.takeError();
  auto pads = numbers("pads", 2 * count, 0);
  if (!pads)
    return pads.takeError();
  llvm::SmallVector<Axis, 3> axes;
  for (size_t i = 0; i < count; ++i) {
    Axis axis;
    axis.input = x.shape[i + 2];
    axis.kernel = w.shape[i + 2];
    axis.stride = (*strides)[i];
    axis.dilation = (*dilations)[i];
    if (automatic == "NOTSET") {
      axis.padBegin = (*pads)[i];
      axis.padEnd = (*pads)[count + i];
    }
    if (llvm::Error error = outputExtent(context, automatic, axis))
      return error;
    axes.push_back(axis);
  }
  return axes;
}

/// Advances a row-major index; false after the last one.
bool advance(Extents& index, llvm::ArrayRef<Axis> axes, int64_t Axis::*extent) {
  for (size_t axis = axes.size(); axis > 0; --axis) {
    if (++index[axis - 1] < axes[axis - 1].*extent)
      return true;
    index[axis - 1] = 0;
  }
  return false;
}

/// The products of one channel's kernel, at one place.
template <class T>
SumType<T> placeSum(llvm::ArrayRef<Axis> axes, const Extents& place, const T* x, const T* w) {
  SumType<T> sum = 0;
  Extents tap(axes.size(), 0);
  do {
    int64_t offset = 0;
    bool inside = true;
    for (size_t i = 0; i < axes.size() && inside; ++i) {
      const int64_t at = place[i] * axes[i].stride + tap[i] * axes[i].dilation - axes[i].padBegin;
      inside = at >= 0 && at < axes[i].input;
      offset = offset * axes[i].input + (inside ? at : 0);
    }
    if (inside)
      sum += static_cast<SumType<T>>(load(x[offset])) * static_cast<SumType<T>>(load(*w));
    ++w;
  } while (advance(tap, axes, &Axis::kernel));
  return sum;
}

llvm::Error conv(KernelContext& context) {
  const TensorView& x = context.in(0);
  const TensorView& w = context.in(1);
  const TensorView* bias = context.input(2);
  const int64_t groups = context.node().intAttr("group", 1);
  if (x.rank() < 3 || w.rank() != x.rank())
    return context.error("X and W must have equal ranks of at least 3");
  if (groups < 1 || x.shape[1] % groups != 0 || w.shape[0] % groups != 0 ||
      w.shape[1] != x.shape[1] / groups)
    return context.error(fmt::format("{} groups of {} channels do not fit W", groups, x.shape[1]));
  if (w.element != x.element ||
      (bias && (bias->element != x.element || bias->rank() != 1 || bias->shape[0] != w.shape[0])))
    return context.error("W and B must fit X and each other");
  auto axes = spatialAxes(context);
  if (!axes)
    return axes.takeError();
  Extents shape{x.shape[0], w.shape[0]};
  for (const Axis& axis : *axes)
    shape.push_back(axis.output);
  auto y = context.output(0, x.element, shape);
  if (!y)
    return y.takeError();
  if (y->elementCount() == 0)
    return llvm::Error::success();
  const int64_t channels = w.shape[1];
  const int64_t places = y->strides[1];
  const int64_t perGroup = w.shape[0] / groups;
  return dispatch(FloatTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    context.parallelFor(shape[0] * shape[1], [&](int64_t unit) {
      const int64_t batch = unit / shape[1];
      const int64_t feature = unit % shape[1];
      const T* from =
          x.as<T>() + batch * x.strides[0] + feature / perGroup * channels * x.strides[1];
      const T* kernel = w.as<T>() + feature * w.strides[0];
      T* to = y->template as<T>() + unit * places;
      Extents place(axes->size(), 0);
      do {
        SumType<T> sum = bias ? static_cast<SumType<T>>(load(bias->as<T>()[feature])) : 0;
        for (int64_t channel = 0; channel < channels; ++channel)
          sum += placeSum<T>(*axes, place, from + channel * x.strides[1],
                             kernel + channel * w.strides[1]);
        *to++ = store<T>(static_cast<ArithmeticType<T>>(sum));
      } while (advance(place, *axes, &Axis::output));
    });
    return llvm::Error::success();
  });
}

} // namespace

void register_conv(KernelRegistry& registry) { registry.add("Conv", 1, conv); }

} // namespace kvopt
