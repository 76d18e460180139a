// Reductions over axes: ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceSumSquare
// (sum of x²), ReduceL1 (sum of |x|), ReduceL2 (square root of the sum of x²). Axes are an
// attribute before opset 18 (ReduceSum: 13) and an operand since.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/integer_input.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

enum class Reduction { Sum, Mean, Max, Min, Product, SumSquare, L1, L2 };

struct Axes {
  llvm::SmallVector<bool, 6> reduced;
  bool nothing = false; ///< without axes and with noop_with_empty_axes: the result is the operand
};

llvm::Expected<Axes> reducedAxes(KernelContext& context, unsigned rank) {
  Extents listed;
  if (context.node().operands().size() > 1) {
    if (context.has(1)) {
      auto operand = integersOf(context, 1);
      if (!operand)
        return operand.takeError();
      listed = std::move(*operand);
    }
  } else if (auto attribute = context.node().intsAttr("axes")) {
    listed.append(attribute->begin(), attribute->end());
  }
  Axes axes;
  axes.reduced.assign(rank, listed.empty());
  axes.nothing = listed.empty() && context.node().intAttr("noop_with_empty_axes", 0) != 0;
  auto normalised = axesOf(context, listed, rank);
  if (!normalised)
    return normalised.takeError();
  for (unsigned axis : *normalised)
    axes.reduced[axis] = true;
  return axes;
}

template <class S> S identityOf(Reduction kind) {
  using Limits = std::numeric_limits<S>;
  switch (kind) {
  case Reduction::Product:
    return S(1);
  case Reduction::Max:
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  case Reduction::Min:
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  default:
    return S(0);
  }
}

template <class S> S combine(Reduction kind, S total, S value) {
  switch (kind) {
  case Reduction::Product:
    return wrapping<S>(total, value, std::multiplies<>());
  case Reduction::Max:
    return value > total || value != value ? value : total;
  case Reduction::Min:
    return value < total || value != value ? value : total;
  case Reduction::SumSquare:
  case Reduction::L2:
    return wrapping<S>(total, wrapping<S>(value, value, std::multiplies<>()), std::plus<>());
  case Reduction::L1:
    return value < S(0) ? wrapping<S>(total, value, std::minus<>())
                        : wrapping<S>(total, value, std::plus<>());
  default:
    return wrapping<S>(total, value, std::plus<>());
  }
}

/// Totals of floating-point elements are double, and those of integers have 64 bits, so that a mean
/// is not affected by overflow of the element type.
template <class T>
using Total =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>, double>;

/// Sum of f(x) over `count` adjacent elements x of `row`, in partial sums that do not wait for each
/// other.
template <class T, class F> double sumOf(const T* row, int64_t count, F f) {
  constexpr int64_t lanes = 8;
  double sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      sums[lane] += f(static_cast<double>(load(row[i + lane])));
  for (; i < count; ++i)
    sums[i % lanes] += f(static_cast<double>(load(row[i])));
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// The total of `count` adjacent elements.
template <class T> Total<T> totalOf(Reduction kind, const T* row, int64_t count) {
  using S = Total<T>;
  if constexpr (std::is_same_v<S, double>) {
    if (kind == Reduction::Sum || kind == Reduction::Mean)
      return sumOf(row, count, [](double x) { return x; });
    if (kind == Reduction::SumSquare || kind == Reduction::L2)
      return sumOf(row, count, [](double x) { return x * x; });
  }
  S total = static_cast<S>(identityOf<ArithmeticType<T>>(kind));
  for (int64_t i = 0; i < count; ++i)
    total = combine<S>(kind, total, static_cast<S>(load(row[i])));
  return total;
}

/// The result for the total of `count` elements.
template <class T> T resultOf(Reduction kind, Total<T> total, int64_t count) {
  using S = Total<T>;
  if (kind == Reduction::Mean) {
    if constexpr (std::is_integral_v<S>)
      total = count == 0 ? S(0) : static_cast<S>(total / static_cast<S>(count));
    else
      total /= static_cast<S>(count);
  }
  if (kind == Reduction::L2)
    total = static_cast<S>(std::sqrt(static_cast<double>(total)));
  return store<T>(static_cast<ArithmeticType<T>>(total));
}

/// Whether the reduced axes are the last ones.
bool reducesRows(const Axes& axes) {
  const auto first = llvm::find(axes.reduced, true);
  return std::all_of(first, axes.reduced.end(), [](bool reduced) { return reduced; });
}

template <class T>
void reduce(KernelContext& context, Reduction kind, const TensorView& input, const Axes& axes,
            llvm::ArrayRef<int64_t> kept, T* output) {
  using S = Total<T>;
  const int64_t results = product(kept);
  const int64_t perResult = results == 0 ? 0 : input.elementCount() / results;
  if (input.isContiguous() && reducesRows(axes)) {
    const int64_t together = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, perResult));
    context.parallelFor(results / together + (results % together != 0), [&](int64_t part) {
      for (int64_t i = part * together; i < std::min(results, (part + 1) * together); ++i)
        output[i] =
            resultOf<T>(kind, totalOf(kind, input.as<T>() + i * perResult, perResult), perResult);
    });
    return;
  }
  // Strides of the result for the operand's shape: 0 along the reduced axes.
  Extents strides = contiguousStrides(kept);
  for (unsigned axis = 0; axis < input.rank(); ++axis)
    if (axes.reduced[axis])
      strides[axis] = 0;
  llvm::SmallVector<S, 16> totals(static_cast<size_t>(results),
                                  static_cast<S>(identityOf<ArithmeticType<T>>(kind)));
  StridedLoop<2> loop(input.shape, {input.strides, strides});
  loop.run([&](const std::array<int64_t, 2>& at, int64_t length, const std::array<int64_t, 2>& by) {
    for (int64_t i = 0; i < length; ++i) {
      S& total = totals[static_cast<size_t>(at[1] + i * by[1])];
      total = combine<S>(kind, total, static_cast<S>(load(input.as<T>()[at[0] + i * by[0]])));
    }
  });
  for (size_t i = 0; i < totals.size(); ++i)
    output[i] = resultOf<T>(kind, totals[i], perResult);
}

template <Reduction kind> llvm::Error reduction(KernelContext& context) {
  const TensorView& input = context.in(0);
  auto axes = reducedAxes(context, input.rank());
  if (!axes)
    return axes.takeError();
  Extents kept;
  Extents shape;
  bool keepDims = context.node().intAttr("keepdims", 1) != 0;
  for (unsigned axis = 0; axis < input.rank(); ++axis) {
    bool gone = axes->reduced[axis] && !axes->nothing;
    kept.push_back(gone ? 1 : input.shape[axis]);
    if (!gone || keepDims)
      shape.push_back(kept.back());
  }
  if (axes->nothing)
    axes->reduced.assign(input.rank(), false);
  auto output = context.output(0, input.element, shape);
  if (!output)
    return output.takeError();
  if constexpr (kind == Reduction::Max || kind == Reduction::Min)
    if (input.element == ElementType::Bool) {
      auto* bytes = output->template as<uint8_t>();
      reduce<uint8_t>(context, kind, input, *axes, kept, bytes);
      std::transform(bytes, bytes + output->elementCount(), bytes,
                     [](uint8_t byte) { return static_cast<uint8_t>(byte != 0); });
      return llvm::Error::success();
    }
  return dispatch(NumericTypes(), context, input.element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    reduce<T>(context, kind, input, *axes, kept, output->template as<T>());
    return llvm::Error::success();
  });
}

} // namespace

void register_reduction(KernelRegistry& registry) {
  registry.add("ReduceSum", 1, reduction<Reduction::Sum>);
  registry.add("ReduceMean", 1, reduction<Reduction::Mean>);
  registry.add("ReduceMax", 1, reduction<Reduction::Max>);
  registry.add("ReduceMin", 1, reduction<Reduction::Min>);
  registry.add("ReduceProd", 1, reduction<Reduction::Product>);
  registry.add("ReduceSumSquare", 1, reduction<Reduction::SumSquare>);
  registry.add("ReduceL1", 1, reduction<Reduction::L1>);
  registry.add("ReduceL2", 1, reduction<Reduction::L2>);
}

} // namespace kvopt::kernels
