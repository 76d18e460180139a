// Softmax along one axis (opset 13), or over the axes from `axis` on as one (before):
//
//   Softmax      y[i] = exp(x[i] - max) / sum_j exp(x[j] - max)
//   LogSoftmax   y[i] = x[i] - max - log(sum_j exp(x[j] - max))
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/simd/elementwise.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;
using namespace simd;

namespace {

void logSoftmaxRow(const float* in, float* out, size_t count) {
  const float maximum = *std::max_element(in, in + count);
  double sum = 0;
  for (size_t i = 0; i < count; ++i)
    sum += std::exp(static_cast<double>(in[i]) - static_cast<double>(maximum));
  const double logarithm = std::log(sum);
  for (size_t i = 0; i < count; ++i)
    out[i] =
        static_cast<float>(static_cast<double>(in[i]) - static_cast<double>(maximum) - logarithm);
}

/// One line of doubles with stride `step`.
void softmaxLine(const double* in, double* out, int64_t length, int64_t step, bool logarithmic) {
  double maximum = in[0];
  for (int64_t i = 1; i < length; ++i)
    maximum = std::max(maximum, in[i * step]);
  double sum = 0;
  for (int64_t i = 0; i < length; ++i)
    sum += std::exp(in[i * step] - maximum);
  for (int64_t i = 0; i < length; ++i) {
    const double difference = in[i * step] - maximum;
    out[i * step] = logarithmic ? difference - std::log(sum) : std::exp(difference) / sum;
  }
}

/// Softmax over the middle axis of [outer, length, inner].
llvm::Error softmaxOver(KernelContext& context, int64_t outer, int64_t length, int64_t inner) {
  const TensorView& input = context.in(0);
  const auto compute = context.node().is("LogSoftmax") ? logSoftmaxRow : softmaxRow;
  auto output = context.output(0, input.element, input.shape);
  if (!output)
    return output.takeError();
  if (output->elementCount() == 0)
    return llvm::Error::success();
  if (input.element == ElementType::Double) {
    context.parallelFor(outer * inner, [&](int64_t row) {
      const int64_t start = row / inner * length * inner + row % inner;
      softmaxLine(input.as<double>() + start, output->as<double>() + start, length, inner,
                  context.node().is("LogSoftmax"));
    });
    return llvm::Error::success();
  }
  auto from = floatsOf(context, input);
  if (!from)
    return from.takeError();
  auto to = floatResult(context, *output);
  if (!to)
    return to.takeError();
  if (inner == 1) {
    context.parallelFor(outer, [&](int64_t row) {
      compute(*from + row * length, *to + row * length, static_cast<size_t>(length));
    });
  } else {
    auto line = context.scratch(static_cast<size_t>(length) * sizeof(float));
    if (!line)
      return line.takeError();
    auto* gathered = reinterpret_cast<float*>(line->data());
    for (int64_t row = 0; row < outer * inner; ++row) {
      int64_t start = row / inner * length * inner + row % inner;
      for (int64_t i = 0; i < length; ++i)
        gathered[i] = (*from)[start + i * inner];
      compute(gathered, gathered, static_cast<size_t>(length));
      for (int64_t i = 0; i < length; ++i)
        (*to)[start + i * inner] = gathered[i];
    }
  }
  storeFloats(*to, *output);
  return llvm::Error::success();
}

llvm::Error softmax(KernelContext& context) {
  llvm::ArrayRef<int64_t> shape = context.in(0).shape;
  auto axis =
      axisOf(context, context.node().intAttr("axis", -1), static_cast<unsigned>(shape.size()));
  if (!axis)
    return axis.takeError();
  return softmaxOver(context, product(shape.take_front(*axis)), shape[*axis],
                     product(shape.drop_front(*axis + 1)));
}

llvm::Error softmaxFlattened(KernelContext& context) {
  llvm::ArrayRef<int64_t> shape = context.in(0).shape;
  auto rank = static_cast<int64_t>(shape.size());
  int64_t axis = context.node().intAttr("axis", 1);
  axis = axis < 0 ? axis + rank : axis;
  if (axis < 0 || axis > rank)
    return context.error("axis out of range");
  return softmaxOver(context, product(shape.take_front(static_cast<size_t>(axis))),
                     product(shape.drop_front(static_cast<size_t>(axis))), 1);
}

} // namespace

void register_softmax(KernelRegistry& registry) {
  for (const char* name : {"Softmax", "LogSoftmax"}) {
    registry.add(name, 1, softmaxFlattened, 12);
    registry.add(name, 13, softmax);
  }
}

} // namespace kvopt::kernels
