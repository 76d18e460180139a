// Normalization of heads row by row in f32.
#include "runtime/attention/head_normalization.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/simd/normalize_row.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

llvm::Expected<TensorView> normalized(KernelContext& context, const TensorView& heads,
                                      unsigned operand, double epsilon) {
  const TensorView& weights = context.in(operand);
  const Extents& shape = heads.shape;
  const int64_t width = shape[3];
  if (weights.shape != Extents{width} || weights.element != heads.element || width == 0)
    return context.error(formatted(
        "operand {} must be [{}] of the query's element type, one weight per element of a head",
        operand, width));
  auto scale = floatsOf(context, weights);
  if (!scale)
    return scale.takeError();
  auto result = scratchTensor(context, heads.element, shape);
  if (!result)
    return result;
  auto row = scratchTensor(context, ElementType::Float, {width});
  if (!row)
    return row;
  llvm::Error error =
      dispatch(TypeList<float, Float16, BFloat16>(), context, heads.element, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        T* out = result->template as<T>();
        float* values = row->template as<float>();
        for (int64_t line = 0, count = shape[0] * shape[1] * shape[2]; line < count; ++line) {
          const int64_t head = line / shape[2];
          const T* in = heads.as<T>() + head / shape[1] * heads.strides[0] +
                        head % shape[1] * heads.strides[1] + line % shape[2] * heads.strides[2];
          std::transform(in, in + width, values,
                         [](T element) { return kvopt::kernels::load(element); });
          simd::normalizeRow(values, values, width, epsilon, false, *scale, nullptr);
          out = std::transform(values, values + width, out,
                               [](float value) { return store<T>(value); });
        }
        return llvm::Error::success();
      });
  if (error)
    return error;
  return result;
}

} // namespace

llvm::Error normalizeHeads(KernelContext& context, TensorView& query, TensorView& key,
                           const HeadNormalization& request) {
  if (context.has(request.queryWeights) != context.has(request.keyWeights))
    return context.error("a norm weight for the query without one for the key, or the reverse");
  if (!context.has(request.queryWeights))
    return llvm::Error::success();
  const auto epsilon = static_cast<double>(context.node().floatAttr(request.epsilon, 1e-6f));
  auto normalizedQuery = normalized(context, query, request.queryWeights, epsilon);
  if (!normalizedQuery)
    return normalizedQuery.takeError();
  auto normalizedKey = normalized(context, key, request.keyWeights, epsilon);
  if (!normalizedKey)
    return normalizedKey.takeError();
  query = *normalizedQuery;
  key = *normalizedKey;
  return llvm::Error::success();
}

} // namespace kvopt::runtime
