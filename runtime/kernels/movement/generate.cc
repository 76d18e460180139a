// Operators that generate tensors from numbers:
//
//   ConstantOfShape   y[…] = value, with the shape in the operand
//   Range             y[i] = start + i * delta, max(0, ceil((limit - start) / delta)) elements
//
// Range of float16 and bfloat16 (opset 27) is computed in stash_type (float or double) and rounded
// once per element.
//
// Versions: ConstantOfShape from opset 9, Range from 11.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/integer_input.h"

#include <cmath>
#include <cstring>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error constantOfShape(KernelContext& context) {
  auto shape = integersOf(context, 0);
  if (!shape)
    return shape.takeError();
  auto count = countOf(context, *shape);
  if (!count)
    return count.takeError();
  float zero = 0.0f;
  std::span<const std::byte> value = std::as_bytes(std::span(&zero, 1));
  ElementType element = ElementType::Float;
  const Attribute* attribute = context.node().attribute("value");
  if (attribute && attribute->kind() == AttributeKind::Tensor) {
    const TensorData& tensor = *attribute->tensorValue();
    auto bytes = tensor.bytes();
    if (!bytes)
      return bytes.takeError();
    if (tensor.elementCount() != 1 || !byteWidth(tensor.elementType()))
      return context.error("value must be one element of whole bytes");
    value = *bytes;
    element = tensor.elementType();
  }
  auto output = context.output(0, element, *shape);
  if (!output)
    return output.takeError();
  for (int64_t i = 0; i < *count; ++i)
    std::memcpy(output->data + i * static_cast<int64_t>(value.size()), value.data(), value.size());
  return llvm::Error::success();
}

/// Number of elements of a range; an error if it is not a valid extent.
template <class T>
llvm::Expected<int64_t> rangeLength(KernelContext& context, T start, T limit, T delta) {
  if (delta == T(0))
    return context.error("delta is 0");
  if constexpr (std::is_integral_v<T>) {
    bool forward = delta > 0;
    if (forward ? start >= limit : start <= limit)
      return 0;
    auto distance = forward ? static_cast<uint64_t>(limit) - static_cast<uint64_t>(start)
                            : static_cast<uint64_t>(start) - static_cast<uint64_t>(limit);
    auto step = forward ? static_cast<uint64_t>(delta) : uint64_t{0} - static_cast<uint64_t>(delta);
    uint64_t length = distance / step + (distance % step != 0);
    if (length > static_cast<uint64_t>(INT64_MAX))
      return context.error("too many elements");
    return static_cast<int64_t>(length);
  } else {
    double length = std::ceil((static_cast<double>(limit) - static_cast<double>(start)) /
                              static_cast<double>(delta));
    if (!(length < 0x1p62))
      return context.error("too many elements");
    return static_cast<int64_t>(std::max(length, 0.0));
  }
}

bool isNarrow(ElementType element) {
  return element == ElementType::Float16 || element == ElementType::BFloat16;
}

/// Range of a 16-bit type in the arithmetic of S.
template <class S> llvm::Error stashedRange(KernelContext& context) {
  const TensorView& start = context.in(0);
  return dispatch(
      TypeList<Float16, BFloat16>(), context, start.element, [&](auto tag) -> llvm::Error {
        using T = typename decltype(tag)::Type;
        const S first = load(*start.as<T>());
        const S step = load(*context.in(2).as<T>());
        auto length = rangeLength(context, first, S(load(*context.in(1).as<T>())), step);
        if (!length)
          return length.takeError();
        auto output = context.output(0, start.element, {*length});
        if (!output)
          return output.takeError();
        for (int64_t i = 0; i < *length; ++i)
          output->template as<T>()[i] =
              store<T>(static_cast<float>(first + static_cast<S>(i) * step));
        return llvm::Error::success();
      });
}

llvm::Error narrowRange(KernelContext& context) {
  const int64_t stash =
      context.node().intAttr("stash_type", static_cast<int64_t>(ElementType::Float));
  if (stash == static_cast<int64_t>(ElementType::Float))
    return stashedRange<float>(context);
  if (stash == static_cast<int64_t>(ElementType::Double))
    return stashedRange<double>(context);
  return context.error(formatted("stash_type = {} is neither float nor double", stash));
}

llvm::Error range(KernelContext& context) {
  const TensorView& start = context.in(0);
  const TensorView& limit = context.in(1);
  const TensorView& delta = context.in(2);
  if (start.element != limit.element || start.element != delta.element)
    return context.error("operands have different element types");
  if (start.elementCount() != 1 || limit.elementCount() != 1 || delta.elementCount() != 1)
    return context.error("operands must be scalars");
  if (isNarrow(start.element) && context.opset() >= 27)
    return narrowRange(context);
  using Types = TypeList<float, double, int16_t, int32_t, int64_t>;
  return dispatch(Types(), context, start.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    T first = *start.as<T>();
    T step = *delta.as<T>();
    auto length = rangeLength(context, first, *limit.as<T>(), step);
    if (!length)
      return length.takeError();
    auto output = context.output(0, start.element, {*length});
    if (!output)
      return output.takeError();
    // The sum is before the limit, but the product alone may overflow.
    for (int64_t i = 0; i < *length; ++i)
      output->template as<T>()[i] = wrapping<T>(
          first, wrapping<T>(static_cast<T>(i), step, std::multiplies<>()), std::plus<>());
    return llvm::Error::success();
  });
}

} // namespace

void register_generate(KernelRegistry& registry) {
  registry.add("ConstantOfShape", 9, constantOfShape);
  registry.add("Range", 11, range);
}

} // namespace kvopt::kernels
