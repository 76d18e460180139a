// Conv over any number of spatial axes:
//
//   Y[b,m,o…] = B[m] + sum over c, k… of W[m,c,k…]
//               X[b, g * (C/group) + c, o * stride + k * dilation - pad…]
//               g = m / (M/group); positions outside of X are 0
//
// oneDNN computes sums in f32. Loops compute small convolutions, and those of double or with more
// than three axes; their sums are f32 for 16-bit operands and double for others.
//
// Versions: every opset.
#include "runtime/kernels/support/convolution.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "support/string_ends.h"

#include <atomic>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

using Axis = ConvolutionAxis;

constexpr int64_t largest = int64_t{1} << 31;

llvm::Error outputExtent(const KernelContext& context, llvm::StringRef automatic, Axis& axis) {
  if (axis.input > largest || axis.kernel < 1 || axis.kernel > largest || axis.stride < 1 ||
      axis.stride > largest || axis.dilation < 1 || axis.dilation > largest / axis.kernel ||
      axis.padBegin < 0 || axis.padBegin > largest || axis.padEnd < 0 || axis.padEnd > largest)
    return context.error("an extent, stride, dilation or pad out of range");
  const int64_t reach = axis.dilation * (axis.kernel - 1) + 1;
  if (startsWith(automatic, "SAME")) {
    axis.output = (axis.input + axis.stride - 1) / axis.stride;
    const int64_t pads = std::max<int64_t>(0, (axis.output - 1) * axis.stride + reach - axis.input);
    axis.padBegin = automatic == "SAME_UPPER" ? pads / 2 : pads - pads / 2;
    axis.padEnd = pads - axis.padBegin;
    return llvm::Error::success();
  }
  const int64_t span = axis.input + axis.padBegin + axis.padEnd - reach;
  if (span < 0)
    return context.error(formatted("a kernel that reaches over {} elements of {}", reach,
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
    return context.error(formatted("auto_pad '{}' is not known", automatic.str()));
  auto numbers = [&](const char* name, size_t size, int64_t otherwise) -> llvm::Expected<Extents> {
    auto given = node.intsAttr(name);
    if (given && given->size() != size)
      return context.error(formatted("{} numbers of {} for {}", given->size(), name, size));
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

/// Products of one channel's kernel at one position.
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

/// A convolution with consistent operands.
struct Problem {
  const TensorView& x;
  const TensorView& w;
  const TensorView* bias;
  int64_t groups;
  llvm::SmallVector<Axis, 3> axes;

  int64_t channels() const { return w.shape[1]; } ///< channels per group
  int64_t features() const { return w.shape[0]; }
};

/// Evaluates the formula directly.
template <class T> void convolveByLoops(KernelContext& context, const Problem& p, TensorView& y) {
  const int64_t features = p.features();
  const int64_t places = y.strides[1];
  const int64_t perGroup = features / p.groups;
  context.parallelFor(y.shape[0] * features, [&](int64_t unit) {
    const int64_t batch = unit / features;
    const int64_t feature = unit % features;
    const T* from =
        p.x.as<T>() + batch * p.x.strides[0] + feature / perGroup * p.channels() * p.x.strides[1];
    const T* kernel = p.w.as<T>() + feature * p.w.strides[0];
    T* to = y.as<T>() + unit * places;
    Extents place(p.axes.size(), 0);
    do {
      SumType<T> sum = p.bias ? static_cast<SumType<T>>(load(p.bias->as<T>()[feature])) : 0;
      for (int64_t channel = 0; channel < p.channels(); ++channel)
        sum += placeSum<T>(p.axes, place, from + channel * p.x.strides[1],
                           kernel + channel * p.w.strides[1]);
      *to++ = store<T>(static_cast<ArithmeticType<T>>(sum));
    } while (advance(place, p.axes, &Axis::output));
  });
}

/// Number of products below which preparing the library takes longer than the loops.
constexpr double fewProducts = 1 << 16;

/// A convolution of floats, divided along its groups or features into equal parts and a smaller
/// last one. The parts, and therefore all sums, depend only on the extents.
class Parts {
public:
  Parts(KernelContext& kernelContext, const Problem& problem, const TensorView& result)
      : context(kernelContext), p(problem), y(result), batches(result.shape[0]),
        byGroup(problem.groups > 1) {
    // Batches of few matrices are divided so that several threads have work.
    constexpr int64_t wanted = 8, leastFeatures = 64;
    const int64_t whole = byGroup ? p.groups : p.features();
    const int64_t perUnit = byGroup ? p.features() / p.groups : 1;
    const int64_t pieces = (wanted + batches - 1) / batches;
    const int64_t least = std::max<int64_t>(1, leastFeatures / perUnit);
    unit = std::clamp((whole + pieces - 1) / pieces, std::min(least, whole), whole);
    count = (whole + unit - 1) / unit;
    lastUnit = whole - (count - 1) * unit;
  }

  /// Returns false if the library does not support it; then nothing has been computed.
  llvm::Expected<bool> compute() {
    shapes[0] = prepare(unit);
    shapes[1] = lastUnit == unit ? nullptr : prepare(lastUnit);
    if (!shapes[0] || (lastUnit != unit && !shapes[1]))
      return false;
    if (llvm::Error error = widenOperands())
      return error;
    weightBytes = largest(&Convolution::weightBytes);
    auto packed = context.scratch(weightBytes * static_cast<size_t>(count));
    if (!packed)
      return packed.takeError();
    const int64_t workers = std::min<int64_t>(batches * count, context.threads());
    const size_t scratchBytes = largest(&Convolution::scratchBytes);
    auto scratch = context.scratch(scratchBytes * static_cast<size_t>(workers));
    if (!scratch)
      return scratch.takeError();
    std::atomic<bool> failed{false};
    context.parallelFor(count, [&](int64_t part) {
      const float* from = w + part * unit * weightsPerUnit();
      if (!of(part).packWeights(from, packed->data() + static_cast<size_t>(part) * weightBytes))
        failed = true;
    });
    std::atomic<int64_t> next{0};
    context.parallelFor(workers, [&](int64_t worker) {
      std::byte* memory = scratch->data() + static_cast<size_t>(worker) * scratchBytes;
      for (int64_t i = next.fetch_add(1); i < batches * count; i = next.fetch_add(1))
        if (!computePart(i / count, i % count, packed->data(), memory))
          failed = true;
    });
    if (failed)
      return context.error("oneDNN failed");
    storeFloats(out, y);
    return true;
  }

private:
  const Convolution& of(int64_t part) const {
    return part == count - 1 && lastUnit != unit ? *shapes[1] : *shapes[0];
  }
  size_t largest(size_t (Convolution::*bytes)() const) const {
    const size_t whole = ((*shapes[0]).*bytes)();
    return shapes[1] ? std::max(whole, ((*shapes[1]).*bytes)()) : whole;
  }
  int64_t featuresPerUnit() const { return byGroup ? p.features() / p.groups : 1; }
  int64_t weightsPerUnit() const { return featuresPerUnit() * p.w.strides[0]; }

  std::unique_ptr<const Convolution> prepare(int64_t units) const {
    ConvolutionShape shape;
    shape.groups = byGroup ? units : 1;
    shape.channels = p.channels();
    shape.features = byGroup ? featuresPerUnit() : units;
    shape.axes.assign(p.axes.begin(), p.axes.end());
    return Convolution::create(shape, p.bias != nullptr);
  }

  llvm::Error widenOperands() {
    const TensorView* views[] = {&p.x, &p.w, p.bias};
    const float** floats[] = {&x, &w, &bias};
    for (size_t i = 0; i < 3; ++i) {
      if (!views[i])
        continue;
      auto widened = floatsOf(context, *views[i]);
      if (!widened)
        return widened.takeError();
      *floats[i] = *widened;
    }
    auto result = floatResult(context, y);
    if (!result)
      return result.takeError();
    out = *result;
    return llvm::Error::success();
  }

  bool computePart(int64_t batch, int64_t part, const std::byte* packed, std::byte* memory) const {
    const int64_t feature = part * unit * featuresPerUnit();
    const int64_t channel = byGroup ? part * unit * p.channels() : 0;
    return of(part).run(x + batch * p.x.strides[0] + channel * p.x.strides[1],
                        packed + static_cast<size_t>(part) * weightBytes,
                        bias ? bias + feature : nullptr,
                        out + batch * y.strides[0] + feature * y.strides[1], memory);
  }

  KernelContext& context;
  const Problem& p;
  const TensorView& y;
  const int64_t batches;
  const bool byGroup;
  int64_t unit = 0, lastUnit = 0, count = 0;
  size_t weightBytes = 0;
  std::unique_ptr<const Convolution> shapes[2];
  const float* x = nullptr;
  const float* w = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
};

llvm::Error conv(KernelContext& context) {
  const TensorView& x = context.in(0);
  const TensorView& w = context.in(1);
  const TensorView* bias = context.input(2);
  const int64_t groups = context.node().intAttr("group", 1);
  if (x.rank() < 3 || w.rank() != x.rank())
    return context.error("X and W must have equal ranks of at least 3");
  if (groups < 1 || x.shape[1] % groups != 0 || w.shape[0] % groups != 0 ||
      w.shape[1] != x.shape[1] / groups)
    return context.error(formatted("{} groups of {} channels do not fit W", groups, x.shape[1]));
  if (w.element != x.element ||
      (bias && (bias->element != x.element || bias->rank() != 1 || bias->shape[0] != w.shape[0])))
    return context.error("W and B must fit X and each other");
  auto axes = spatialAxes(context);
  if (!axes)
    return axes.takeError();
  const Problem problem{x, w, bias, groups, std::move(*axes)};
  Extents shape{x.shape[0], w.shape[0]};
  for (const Axis& axis : problem.axes)
    shape.push_back(axis.output);
  auto y = context.output(0, x.element, shape);
  if (!y)
    return y.takeError();
  if (y->elementCount() == 0)
    return llvm::Error::success();
  const double products =
      static_cast<double>(y->elementCount()) * static_cast<double>(w.strides[0]);
  if (x.element != ElementType::Double && products > fewProducts && w.elementCount() != 0) {
    llvm::Expected<bool> isDone = Parts(context, problem, *y).compute();
    if (!isDone || *isDone)
      return isDone.takeError();
  }
  return dispatch(FloatTypes(), context, x.element, [&](auto tag) -> llvm::Error {
    convolveByLoops<typename decltype(tag)::Type>(context, problem, *y);
    return llvm::Error::success();
  });
}

} // namespace

void register_conv(KernelRegistry& registry) { registry.add("Conv", 1, conv); }

} // namespace kvopt::kernels
