// Normalization over the trailing axes, statistics in double:
//
//   LayerNormalization             y = (x - mean) / sqrt(variance + epsilon) * scale + bias
//   RMSNormalization, Simplified…  y = x / sqrt(mean(x²) + epsilon) * scale
//
// Versions: LayerNormalization in every opset (ONNX has it since opset 17; ONNX Runtime's own is in
// the same domain before), RMSNormalization from 23, and ONNX Runtime's
// SimplifiedLayerNormalization in every opset.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/simd/normalize_row.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Elements as the type of the computation: double for double, float for others.
template <class T>
llvm::Expected<const T*> numbersOf(KernelContext& context, const TensorView& tensor) {
  if constexpr (std::is_same_v<T, float>)
    return floatsOf(context, tensor);
  else if (tensor.element != ElementType::Double)
    return context.error("operands have different element types");
  else
    return static_cast<const T*>(tensor.as<double>());
}

template <class T> llvm::Expected<T*> resultOf(KernelContext& context, const TensorView& output) {
  if constexpr (std::is_same_v<T, float>)
    return floatResult(context, output);
  else if (output.element != ElementType::Double)
    return context.error("operands have different element types");
  else
    return output.as<double>();
}

/// An operand with the shape of the normalized axes; null if absent.
template <class T>
llvm::Expected<const T*> alongAxes(KernelContext& context, unsigned operand,
                                   llvm::ArrayRef<int64_t> axes) {
  const TensorView* view = context.input(operand);
  if (!view)
    return nullptr;
  if (!broadcastsTo(view->shape, axes))
    return context.error(
        formatted("operand {} does not broadcast to the normalised axes", operand));
  auto values = numbersOf<T>(context, *view);
  if (!values || view->elementCount() == product(axes))
    return values;
  auto memory = context.scratch(static_cast<size_t>(product(axes)) * sizeof(T));
  if (!memory)
    return memory.takeError();
  auto* repeated = reinterpret_cast<T*>(memory->data());
  copyStrided(axes, broadcastStrides(*view, axes), *values, repeated);
  return repeated;
}

/// A statistic that the node also returns, one per row.
llvm::Error statisticResult(KernelContext& context, unsigned result, llvm::ArrayRef<int64_t> shape,
                            unsigned axis, llvm::ArrayRef<double> values) {
  if (!context.wants(result))
    return llvm::Error::success();
  Extents reduced(shape.begin(), shape.end());
  std::fill(reduced.begin() + axis, reduced.end(), 1);
  auto output = context.output(result, ElementType::Float, reduced);
  if (!output)
    return output.takeError();
  for (size_t i = 0; i < values.size(); ++i)
    output->as<float>()[i] = static_cast<float>(values[i]);
  return llvm::Error::success();
}

template <class T> llvm::Error normalize(KernelContext& context, bool centred) {
  const TensorView& input = context.in(0);
  llvm::ArrayRef<int64_t> shape = input.shape;
  auto axis =
      axisOf(context, context.node().intAttr("axis", -1), static_cast<unsigned>(shape.size()));
  if (!axis)
    return axis.takeError();
  llvm::ArrayRef<int64_t> normalised = shape.drop_front(*axis);
  int64_t length = product(normalised);
  if (length == 0 && (context.wants(1) || context.wants(2)))
    return context.error("the normalised axes hold no elements, which have no statistics");
  int64_t rows = product(shape.take_front(*axis));
  auto from = numbersOf<T>(context, input);
  if (!from)
    return from.takeError();
  auto scale = alongAxes<T>(context, 1, normalised);
  if (!scale)
    return scale.takeError();
  auto bias = centred ? alongAxes<T>(context, 2, normalised) : llvm::Expected<const T*>(nullptr);
  if (!bias)
    return bias.takeError();
  auto output = context.output(0, context.in(1).element, shape);
  if (!output)
    return output.takeError();
  auto to = resultOf<T>(context, *output);
  if (!to)
    return to.takeError();

  auto epsilon = static_cast<double>(context.node().floatAttr("epsilon", 1e-5f));
  llvm::SmallVector<double, 16> means(static_cast<size_t>(rows));
  llvm::SmallVector<double, 16> inverses(static_cast<size_t>(rows));
  context.parallelFor(rows, [&](int64_t row) {
    const simd::RowStatistics statistics = simd::normalizeRow(
        *from + row * length, *to + row * length, length, epsilon, centred, *scale, *bias);
    means[static_cast<size_t>(row)] = statistics.mean;
    inverses[static_cast<size_t>(row)] = statistics.inverseDeviation;
  });
  if constexpr (std::is_same_v<T, float>)
    storeFloats(*to, *output);
  if (!centred)
    return statisticResult(context, 1, shape, *axis, inverses);
  if (llvm::Error error = statisticResult(context, 1, shape, *axis, means))
    return error;
  return statisticResult(context, 2, shape, *axis, inverses);
}

llvm::Error normalizeAny(KernelContext& context, bool centred) {
  return context.in(0).element == ElementType::Double ? normalize<double>(context, centred)
                                                      : normalize<float>(context, centred);
}

llvm::Error layerNormalization(KernelContext& context) { return normalizeAny(context, true); }
llvm::Error rmsNormalization(KernelContext& context) { return normalizeAny(context, false); }

} // namespace

void register_normalization(KernelRegistry& registry) {
  registry.add("LayerNormalization", 1, layerNormalization);
  registry.add("RMSNormalization", 23, rmsNormalization);
  registry.add("SimplifiedLayerNormalization", 1, rmsNormalization);
}

} // namespace kvopt::kernels
