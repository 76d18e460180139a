// Products of 8-bit codes with scales:
//
//   com.microsoft::MatMulIntegerToFloat
//     Y = a_scale b_scale (A - zero of A) (B - zero of B) + bias
//   com.microsoft::DynamicQuantizeMatMul
//     the same for a float A, which is quantized like in DynamicQuantizeLinear
//   QLinearMatMul
//     y = zero of y + a_scale b_scale / y_scale (a - zero of a) (b - zero of b), rounded to even
//     and saturated to the codes of y
//
// B has one scale and one zero point, or one for each column; A has one of each. Batch axes
// broadcast. Sums of codes are exact up to 32 bits and wrap beyond.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/kernels/support/integer_product.h"
#include "runtime/simd/quantize_range.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

struct Codes {
  CodeOperand operand;
  llvm::ArrayRef<int64_t> shape;
};

llvm::Expected<int64_t> countByColumn(const KernelContext& context, unsigned operand,
                                      int64_t columns) {
  const TensorView& numbers = context.in(operand);
  const int64_t count = numbers.elementCount();
  if (numbers.rank() > 1 || (count != 1 && count != columns))
    return context.error(formatted("operand {} ({}) must be one number or {}", operand,
                                   columns == 1 ? "of A" : "of B",
                                   columns == 1 ? "[1]" : "one for each column"));
  return count;
}

llvm::Expected<Codes> codesOf(KernelContext& context, unsigned operand, unsigned zeroOperand,
                              int64_t columns) {
  const TensorView& tensor = context.in(operand);
  if (tensor.element != ElementType::UInt8 && tensor.element != ElementType::Int8)
    return context.error(
        formatted("element type {} is not supported", onnxName(tensor.element).str()));
  Codes codes;
  codes.shape = tensor.shape;
  setCodes(context, operand, codes.operand);
  const TensorView* zero = context.input(zeroOperand);
  if (!zero)
    return codes;
  auto count = countByColumn(context, zeroOperand, columns);
  if (!count)
    return count.takeError();
  if (zero->element != tensor.element)
    return context.error(formatted("operand {} must be of the type of its codes", zeroOperand));
  codes.operand.zeros = reinterpret_cast<const uint8_t*>(zero->data);
  codes.operand.hasManyZeros = *count != 1;
  return codes;
}

/// Factors of the product's columns, and their offsets.
struct Epilogue {
  std::vector<float> scales;
  const float* bias = nullptr;
};

llvm::Expected<Epilogue> epilogueOf(KernelContext& context, float aScale, unsigned bScale,
                                    unsigned bias, int64_t columns) {
  auto count = countByColumn(context, bScale, columns);
  if (!count)
    return count.takeError();
  auto scales = floatsOf(context, context.in(bScale));
  if (!scales)
    return scales.takeError();
  Epilogue epilogue;
  for (int64_t j = 0; j < columns; ++j)
    epilogue.scales.push_back(aScale * (*scales)[*count == 1 ? 0 : j]);
  if (!context.has(bias))
    return epilogue;
  const TensorView& added = context.in(bias);
  if (added.shape != Extents{columns})
    return context.error(formatted("the bias must be [{}]", columns));
  auto floats = floatsOf(context, added);
  if (!floats)
    return floats.takeError();
  epilogue.bias = *floats;
  return epilogue;
}

TensorView batchOf(llvm::ArrayRef<int64_t> shape) {
  return TensorView::contiguous(ElementType::UInt8, shape.drop_back(2), nullptr);
}

/// Scales a row of sums.
void scaleRow(const int32_t* sums, const Epilogue& epilogue, float* out) {
  for (size_t j = 0; j < epilogue.scales.size(); ++j)
    out[j] = static_cast<float>(sums[j]) * epilogue.scales[j] +
             (epilogue.bias ? epilogue.bias[j] : 0.0f);
}

/// Calls `write` with every row of the sums of products, in order over all matrices.
llvm::Error forEachRowOfSums(KernelContext& context, const Codes& a, const Codes& b,
                             llvm::ArrayRef<int64_t> batch,
                             llvm::function_ref<void(int64_t row, const int32_t* sums)> write) {
  const int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(), n = b.shape.back();
  int64_t sumBytes = 0;
  if (__builtin_mul_overflow(m * n, int64_t{sizeof(int32_t)}, &sumBytes))
    return context.error("the sums do not fit in the address space");
  auto sums = context.scratch(static_cast<size_t>(sumBytes));
  if (!sums)
    return sums.takeError();
  IntegerProduct product;
  product.rows = m;
  product.inner = k;
  product.columns = n;
  product.a = a.operand;
  product.b = b.operand;
  product.out = reinterpret_cast<int32_t*>(sums->data());
  IntegerScratch scratch;
  llvm::Error error = llvm::Error::success();
  int64_t firstRow = 0;
  StridedLoop<2> loop(batch, {broadcastStrides(batchOf(a.shape), batch),
                              broadcastStrides(batchOf(b.shape), batch)});
  loop.run([&](const std::array<int64_t, 2>& at, int64_t count, const std::array<int64_t, 2>& by) {
    for (int64_t matrix = 0; matrix < count && !error; ++matrix, firstRow += m) {
      product.a.codes = a.operand.codes + (at[0] + matrix * by[0]) * m * k;
      if (!b.operand.strips)
        product.b.codes = b.operand.codes + (at[1] + matrix * by[1]) * k * n;
      error = multiplyIntegers(context, product, scratch);
      if (!error)
        context.parallelFor(m, [&](int64_t i) { write(firstRow + i, product.out + i * n); });
    }
  });
  return error;
}

/// Output of the product; nullopt if it has no elements.
llvm::Expected<std::optional<TensorView>> outputOf(KernelContext& context, const Codes& a,
                                                   const Codes& b, ElementType element,
                                                   Extents& batch) {
  auto shape = broadcastShape(context, batchOf(a.shape).shape, batchOf(b.shape).shape);
  if (!shape)
    return shape.takeError();
  batch = *shape;
  shape->push_back(a.shape[a.shape.size() - 2]);
  shape->push_back(b.shape.back());
  auto output = context.output(0, element, *shape);
  if (!output)
    return output.takeError();
  return output->elementCount() == 0 ? std::nullopt : std::optional<TensorView>(*output);
}

llvm::Error scaledProduct(KernelContext& context, const Codes& a, const Codes& b,
                          const Epilogue& epilogue, ElementType element) {
  Extents batch;
  auto output = outputOf(context, a, b, element, batch);
  if (!output)
    return output.takeError();
  if (!*output)
    return llvm::Error::success();
  auto result = floatResult(context, **output);
  if (!result)
    return result.takeError();
  const int64_t n = b.shape.back();
  auto write = [&](int64_t row, const int32_t* sums) {
    scaleRow(sums, epilogue, *result + row * n);
  };
  if (llvm::Error error = forEachRowOfSums(context, a, b, batch, write))
    return error;
  storeFloats(*result, **output);
  return llvm::Error::success();
}

llvm::Error checkMatrices(const KernelContext& context, unsigned right = 1) {
  const Extents& a = context.in(0).shape;
  const Extents& b = context.in(right).shape;
  if (a.size() < 2 || b.size() < 2)
    return context.error("operands must be matrices");
  if (b[b.size() - 2] != a.back())
    return context.error(formatted("inner extents {} and {} differ", a.back(), b[b.size() - 2]));
  return llvm::Error::success();
}

llvm::Error matMulIntegerToFloat(KernelContext& context) {
  if (llvm::Error error = checkMatrices(context))
    return error;
  const TensorView& scale = context.in(2);
  if (auto count = countByColumn(context, 2, 1); !count)
    return count.takeError();
  auto aScale = floatsOf(context, scale);
  if (!aScale)
    return aScale.takeError();
  const int64_t columns = context.in(1).shape.back();
  auto a = codesOf(context, 0, 4, 1);
  if (!a)
    return a.takeError();
  auto b = codesOf(context, 1, 5, columns);
  if (!b)
    return b.takeError();
  auto epilogue = epilogueOf(context, **aScale, 3, 6, columns);
  if (!epilogue)
    return epilogue.takeError();
  return scaledProduct(context, *a, *b, *epilogue, scale.element);
}

/// The operand as 8-bit codes in scratch memory; stores their scale in `scale`.
llvm::Expected<Codes> quantized(KernelContext& context, const TensorView& x, float& scale) {
  if (x.element != ElementType::Float)
    return context.error("A must be of floats");
  const float* values = x.as<float>();
  const int64_t count = x.elementCount();
  auto bytes = context.scratch(static_cast<size_t>(count) + 1);
  if (!bytes)
    return bytes.takeError();
  const auto [low, high] = simd::rangeOf(values, static_cast<size_t>(count));
  scale = high == low ? 1.0f : (high - low) / 255.0f;
  const float middle = std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f);
  const float zero = std::isnan(middle) ? 0.0f : middle; // NaN for infinite numbers
  auto* codes = reinterpret_cast<uint8_t*>(bytes->data());
  simd::quantizeRange(values, static_cast<size_t>(count), scale, static_cast<uint8_t>(zero),
                      static_cast<uint8_t>(zero), codes);
  codes[count] = static_cast<uint8_t>(zero);
  Codes result;
  result.shape = x.shape;
  result.operand.codes = codes;
  result.operand.zeros = codes + count;
  return result;
}

llvm::Error dynamicQuantizeMatMul(KernelContext& context) {
  if (llvm::Error error = checkMatrices(context))
    return error;
  const int64_t columns = context.in(1).shape.back();
  float scale = 1.0f;
  auto a = quantized(context, context.in(0), scale);
  if (!a)
    return a.takeError();
  auto b = codesOf(context, 1, 3, columns);
  if (!b)
    return b.takeError();
  auto epilogue = epilogueOf(context, scale, 2, 4, columns);
  if (!epilogue)
    return epilogue.takeError();
  return scaledProduct(context, *a, *b, *epilogue, ElementType::Float);
}

/// Stores a row of sums as codes of type `Code`.
template <class Code>
void requantizeRow(const int32_t* sums, llvm::ArrayRef<float> scales, float zero, Code* out) {
  constexpr float low = std::numeric_limits<Code>::min(), high = std::numeric_limits<Code>::max();
  for (size_t j = 0; j < scales.size(); ++j)
    out[j] = static_cast<Code>(
        std::clamp(std::nearbyint(static_cast<float>(sums[j]) * scales[j]) + zero, low, high));
}

llvm::Error qLinearMatMul(KernelContext& context) {
  if (llvm::Error error = checkMatrices(context, 3))
    return error;
  for (unsigned operand : {1u, 6u, 7u})
    if (auto count = countByColumn(context, operand, 1); !count)
      return count.takeError();
  auto aScale = floatsOf(context, context.in(1));
  if (!aScale)
    return aScale.takeError();
  auto yScale = floatsOf(context, context.in(6));
  if (!yScale)
    return yScale.takeError();
  const int64_t columns = context.in(3).shape.back();
  auto a = codesOf(context, 0, 2, 1);
  if (!a)
    return a.takeError();
  auto b = codesOf(context, 3, 5, columns);
  if (!b)
    return b.takeError();
  constexpr unsigned noBias = 8;
  auto epilogue = epilogueOf(context, **aScale, 4, noBias, columns);
  if (!epilogue)
    return epilogue.takeError();
  for (float& scale : epilogue->scales)
    scale /= **yScale;
  const TensorView& zero = context.in(7);
  if (zero.element != ElementType::UInt8 && zero.element != ElementType::Int8)
    return context.error(
        formatted("element type {} is not supported", onnxName(zero.element).str()));
  Extents batch;
  auto output = outputOf(context, *a, *b, zero.element, batch);
  if (!output)
    return output.takeError();
  if (!*output)
    return llvm::Error::success();
  TensorView& y = **output;
  return forEachRowOfSums(context, *a, *b, batch, [&](int64_t row, const int32_t* sums) {
    if (zero.element == ElementType::UInt8)
      requantizeRow(sums, epilogue->scales, zero.as<uint8_t>()[0], y.as<uint8_t>() + row * columns);
    else
      requantizeRow(sums, epilogue->scales, zero.as<int8_t>()[0], y.as<int8_t>() + row * columns);
  });
}

} // namespace

void register_quantized_products(KernelRegistry& registry) {
  const auto add = [&](OpName op, int64_t since, KernelFunction run, unsigned weights) {
    Kernel& kernel = registry.add(op, since, run);
    kernel.weightOperand = weights;
    kernel.packWeights = packCodes;
  };
  add("com.microsoft::MatMulIntegerToFloat", 1, matMulIntegerToFloat, 1);
  add("com.microsoft::DynamicQuantizeMatMul", 1, dynamicQuantizeMatMul, 1);
  add("QLinearMatMul", 10, qLinearMatMul, 3);
}

} // namespace kvopt::kernels
