// Conversions between numbers and integer codes, and products of codes:
//
//   DequantizeLinear        y = (x - zero) * scale
//   QuantizeLinear          y = saturate(round(x / scale) + zero), halves to even
//   DynamicQuantizeLinear   the same for uint8, with a scale for the range of x and 0
//   MatMulInteger           Y = (A - zero of A) (B - zero of B) in int32
//
// Codes are integers; for the first two operators also floating-point numbers of 8 or 4 bits, which
// are rounded to the nearest number of their type. The result has the type output_dtype, by default
// that of the scale or zero point.
//
// scale and zero are one number, one for each position of `axis`, or one for each block of
// block_size positions along it. The zero point of A is one number or one for each row, that of B
// one number or one for each column.
//
// Versions: DequantizeLinear, QuantizeLinear and MatMulInteger from opset 10, DynamicQuantizeLinear
// from 11; axis from 13, block_size from 21.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/kernels/support/integer_product.h"
#include "runtime/memory/narrow_codes.h"
#include "runtime/simd/quantize_range.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

using CodeTypes = TypeList<uint8_t, int8_t, uint16_t, int16_t, int32_t>;

/// Index of the scale of an element.
class ScaleIndex {
public:
  static llvm::Expected<ScaleIndex> of(KernelContext& context) {
    const TensorView& x = context.in(0);
    const TensorView& scale = context.in(1);
    ScaleIndex index(x.shape);
    const int64_t block = context.node().intAttr("block_size", 0);
    if (block < 0)
      return context.error(formatted("a block_size of {}", block));
    if (scale.elementCount() == 1 && scale.rank() <= 1)
      return index;
    auto axis = axisOf(context, context.node().intAttr("axis", 1), x.rank());
    if (!axis)
      return axis.takeError();
    index.axis = *axis;
    if (block == 0) {
      if (scale.rank() != 1 || scale.shape[0] != x.shape[*axis])
        return context.error("the scale must be one number, or one for each position of the axis");
      index.strides[*axis] = 1;
      return index;
    }
    Extents expected = x.shape;
    expected[*axis] = expected[*axis] / block + (expected[*axis] % block != 0);
    if (scale.shape != expected)
      return context.error("the scale must be one number for each block");
    index.block = block;
    index.strides = scale.strides;
    return index;
  }

  /// Index for element `position` in row-major order.
  int64_t at(int64_t position) const {
    int64_t offset = 0;
    for (size_t d = shape.size(); d > 0; --d) {
      const int64_t coordinate = position % shape[d - 1];
      position /= shape[d - 1];
      offset += (d - 1 == axis ? coordinate / block : coordinate) * strides[d - 1];
    }
    return offset;
  }

private:
  explicit ScaleIndex(const Extents& extents) : shape(extents), strides(extents.size(), 0) {}
  Extents shape, strides;
  size_t axis = SIZE_MAX;
  int64_t block = 1;
};

/// Zero points, one for each scale; null if absent.
template <class T> llvm::Expected<const T*> zeroPoints(KernelContext& context, ElementType codes) {
  const TensorView* zero = context.input(2);
  if (!zero)
    return nullptr;
  if (zero->element != codes || zero->elementCount() != context.in(1).elementCount())
    return context.error("the zero point must be like the scale, of the codes' element type");
  return zero->as<T>();
}

/// DequantizeLinear of codes with values `numbers`.
llvm::Error dequantizeCodes(KernelContext& context, const ScaleIndex& index, const float* scales,
                            const std::array<float, 256>& numbers, float* y) {
  const TensorView& x = context.in(0);
  auto zeros = zeroPoints<uint8_t>(context, x.element);
  if (!zeros)
    return zeros.takeError();
  for (int64_t i = 0, count = x.elementCount(); i < count; ++i) {
    const int64_t at = index.at(i);
    const float number = numbers[x.as<uint8_t>()[i]];
    y[i] = (*zeros ? number - numbers[(*zeros)[at]] : number) * scales[at];
  }
  return llvm::Error::success();
}

llvm::Error dequantizeLinear(KernelContext& context) {
  const TensorView& x = context.in(0);
  auto index = ScaleIndex::of(context);
  if (!index)
    return index.takeError();
  auto scales = floatsOf(context, context.in(1));
  if (!scales)
    return scales.takeError();
  const auto asked = static_cast<ElementType>(context.node().intAttr("output_dtype", 0));
  auto output =
      context.output(0, asked == ElementType::Undefined ? context.in(1).element : asked, x.shape);
  if (!output)
    return output.takeError();
  auto y = floatResult(context, *output);
  if (!y)
    return y.takeError();
  auto dequantize = [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    auto zeros = zeroPoints<T>(context, x.element);
    if (!zeros)
      return zeros.takeError();
    for (int64_t i = 0, count = x.elementCount(); i < count; ++i) {
      const int64_t at = index->at(i);
      const auto zero = *zeros ? static_cast<int64_t>((*zeros)[at]) : 0;
      (*y)[i] = static_cast<float>(static_cast<int64_t>(x.as<T>()[i]) - zero) * (*scales)[at];
    }
    return llvm::Error::success();
  };
  llvm::Error error = isFloatCode(x.element)
                          ? dequantizeCodes(context, *index, *scales, numbersOfCodes(x.element), *y)
                          : dispatch(CodeTypes(), context, inMemoryAs(x.element), dequantize);
  if (!error)
    storeFloats(*y, *output);
  return error;
}

/// Value clamped to the range of T, or to `range`.
template <class T> T saturated(double value, std::optional<SmallRange> range = std::nullopt) {
  if (std::isnan(value))
    return T(0);
  const double least =
      static_cast<double>(range ? static_cast<T>(range->least) : std::numeric_limits<T>::min());
  const double most =
      static_cast<double>(range ? static_cast<T>(range->most) : std::numeric_limits<T>::max());
  return static_cast<T>(std::clamp(value, least, most));
}

/// QuantizeLinear to a floating-point type of 8 or 4 bits, whose zero point is also a number.
llvm::Error quantizeToCodes(KernelContext& context, const ScaleIndex& index, const float* values,
                            const float* scales, ElementType element) {
  CodeRounding rounding;
  rounding.saturate = context.node().intAttr("saturate", 1) != 0;
  auto zeros = zeroPoints<uint8_t>(context, element);
  if (!zeros)
    return zeros.takeError();
  auto y = context.output(0, element, context.in(0).shape);
  if (!y)
    return y.takeError();
  const std::array<float, 256>& numbers = numbersOfCodes(element);
  for (int64_t i = 0, count = y->elementCount(); i < count; ++i) {
    const int64_t at = index.at(i);
    const float zero = *zeros ? numbers[(*zeros)[at]] : 0.0f;
    y->as<uint8_t>()[i] = codeOfNumber(element, values[i] / scales[at] + zero, rounding);
  }
  return llvm::Error::success();
}

llvm::Error quantizeLinear(KernelContext& context) {
  const TensorView& x = context.in(0);
  auto index = ScaleIndex::of(context);
  if (!index)
    return index.takeError();
  auto values = floatsOf(context, x);
  if (!values)
    return values.takeError();
  auto scales = floatsOf(context, context.in(1));
  if (!scales)
    return scales.takeError();
  const auto asked = static_cast<ElementType>(context.node().intAttr("output_dtype", 0));
  const ElementType element = context.has(2)                    ? context.in(2).element
                              : asked == ElementType::Undefined ? ElementType::UInt8
                                                                : asked;
  if (isFloatCode(element) && element != float8E8M0Type)
    return quantizeToCodes(context, *index, *values, *scales, element);
  using Types = TypeList<uint8_t, int8_t, uint16_t, int16_t>;
  return dispatch(Types(), context, inMemoryAs(element), [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    auto zeros = zeroPoints<T>(context, element);
    if (!zeros)
      return zeros.takeError();
    auto y = context.output(0, element, x.shape);
    if (!y)
      return y.takeError();
    for (int64_t i = 0, count = x.elementCount(); i < count; ++i) {
      const int64_t at = index->at(i);
      const double zero = *zeros ? static_cast<double>((*zeros)[at]) : 0;
      y->template as<T>()[i] =
          saturated<T>(std::nearbyint(static_cast<double>((*values)[i] / (*scales)[at])) + zero,
                       smallRangeOf(element));
    }
    return llvm::Error::success();
  });
}

llvm::Error dynamicQuantizeLinear(KernelContext& context) {
  const TensorView& x = context.in(0);
  if (x.element != ElementType::Float)
    return context.error("the operand must be of floats");
  const float* values = x.as<float>();
  const int64_t count = x.elementCount();
  const auto [low, high] = simd::rangeOf(values, static_cast<size_t>(count));
  // An empty range keeps its zeros.
  const float scale = high == low ? 1.0f : (high - low) / 255.0f;
  const auto zero = saturated<uint8_t>(std::nearbyint(static_cast<double>(-low / scale)));
  if (context.wants(0)) {
    auto y = context.output(0, ElementType::UInt8, x.shape);
    if (!y)
      return y.takeError();
    simd::quantizeRange(values, static_cast<size_t>(count), scale, zero, 0, y->as<uint8_t>());
  }
  if (context.wants(1)) {
    auto result = context.output(1, ElementType::Float, {});
    if (!result)
      return result.takeError();
    *result->as<float>() = scale;
  }
  if (context.wants(2)) {
    auto result = context.output(2, ElementType::UInt8, {});
    if (!result)
      return result.takeError();
    *result->as<uint8_t>() = zero;
  }
  return llvm::Error::success();
}

/// An operand of 8-bit codes. Its zero point is one number, or one for each of `positions`.
llvm::Expected<CodeOperand> codesOf(const KernelContext& context, unsigned operand,
                                    unsigned zeroOperand, int64_t positions) {
  const TensorView& codes = context.in(operand);
  const TensorView* zero = context.input(zeroOperand);
  if (codes.element != ElementType::UInt8 && codes.element != ElementType::Int8)
    return context.error(
        formatted("element type {} is not supported", onnxName(codes.element).str()));
  if (zero && (zero->element != codes.element ||
               (zero->elementCount() != 1 && (zero->rank() != 1 || zero->shape[0] != positions))))
    return context.error(formatted("the zero point of operand {} does not fit it", operand));
  CodeOperand result;
  setCodes(context, operand, result);
  if (zero) {
    result.zeros = reinterpret_cast<const uint8_t*>(zero->data);
    result.hasManyZeros = zero->elementCount() != 1;
  }
  return result;
}

llvm::Error matMulInteger(KernelContext& context) {
  const Extents& a = context.in(0).shape;
  const Extents& b = context.in(1).shape;
  if (a.size() < 2 || b.size() < 2)
    return context.error("operands must be matrices");
  const int64_t m = a[a.size() - 2], k = a.back(), n = b.back();
  if (b[b.size() - 2] != k)
    return context.error(formatted("inner extents {} and {} differ", k, b[b.size() - 2]));
  const auto aBatch =
      TensorView::contiguous(ElementType::UInt8, llvm::ArrayRef<int64_t>(a).drop_back(2), nullptr);
  const auto bBatch =
      TensorView::contiguous(ElementType::UInt8, llvm::ArrayRef<int64_t>(b).drop_back(2), nullptr);
  auto batch = broadcastShape(context, aBatch.shape, bBatch.shape);
  if (!batch)
    return batch.takeError();
  Extents shape = *batch;
  shape.push_back(m);
  shape.push_back(n);
  auto output = context.output(0, ElementType::Int32, shape);
  if (!output)
    return output.takeError();
  if (output->elementCount() == 0)
    return llvm::Error::success();
  IntegerProduct product;
  product.rows = m;
  product.inner = k;
  product.columns = n;
  auto left = codesOf(context, 0, 2, m);
  if (!left)
    return left.takeError();
  auto right = codesOf(context, 1, 3, n);
  if (!right)
    return right.takeError();
  product.a = *left;
  product.b = *right;
  int32_t* y = output->as<int32_t>();
  IntegerScratch scratch;
  llvm::Error error = llvm::Error::success();
  StridedLoop<2> loop(*batch, {broadcastStrides(aBatch, *batch), broadcastStrides(bBatch, *batch)});
  loop.run([&](const std::array<int64_t, 2>& at, int64_t count, const std::array<int64_t, 2>& by) {
    for (int64_t matrix = 0; matrix < count && !error; ++matrix, y += m * n) {
      product.a.codes = left->codes + (at[0] + matrix * by[0]) * m * k;
      if (!right->strips)
        product.b.codes = right->codes + (at[1] + matrix * by[1]) * k * n;
      product.out = y;
      error = multiplyIntegers(context, product, scratch);
    }
  });
  return error;
}

} // namespace

void register_quantization(KernelRegistry& registry) {
  registry.add("DequantizeLinear", 10, dequantizeLinear);
  registry.add("QuantizeLinear", 10, quantizeLinear);
  registry.add("DynamicQuantizeLinear", 11, dynamicQuantizeLinear);
  Kernel& product = registry.add("MatMulInteger", 10, matMulInteger);
  product.weightOperand = 1;
  product.packWeights = packCodes;
}

} // namespace kvopt::kernels
