// Dispatch from an element type at run time to a C++ type. All kernels use it.
#pragma once

#include "runtime/exec/kernel.h"
#include "support/format.h"
#include "support/half.h"

#include <limits>
#include <type_traits>

namespace kvopt::kernels {

/// Element formats without a C++20 type.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
/// One byte; every nonzero value is true.
struct Bool {
  uint8_t byte;
};
/// Sixteen bytes that are only moved.
struct Wide {
  uint64_t words[2];
};

/// Type of arithmetic on stored elements of type T: f32 for 16-bit floats.
template <class T> struct Arithmetic { using Type = T; };
template <> struct Arithmetic<Float16> { using Type = float; };
template <> struct Arithmetic<BFloat16> { using Type = float; };
template <> struct Arithmetic<Bool> { using Type = bool; };
template <class T> using ArithmeticType = typename Arithmetic<T>::Type;

/// Type of long sums: double for f32, f32 for 16-bit floats.
template <class T>
using SumType =
    std::conditional_t<std::is_same_v<T, float>, double,
                       std::conditional_t<std::is_integral_v<T>, uint64_t, ArithmeticType<T>>>;

template <class T> ArithmeticType<T> load(T stored) {
  if constexpr (std::is_same_v<T, Float16>)
    return f16ToFloat(stored.bits);
  else if constexpr (std::is_same_v<T, BFloat16>)
    return bf16ToFloat(stored.bits);
  else if constexpr (std::is_same_v<T, Bool>)
    return stored.byte != 0;
  else
    return stored;
}

/// Converts to the element type; rounds once.
template <class T> T store(ArithmeticType<T> value) {
  if constexpr (std::is_same_v<T, Float16>)
    return {floatToF16(value)};
  else if constexpr (std::is_same_v<T, BFloat16>)
    return {floatToBf16(value)};
  else if constexpr (std::is_same_v<T, Bool>)
    return {static_cast<uint8_t>(value)};
  else
    return value;
}

template <class T> constexpr ir::ElementType elementOf();
template <> constexpr ir::ElementType elementOf<float>() { return ir::ElementType::Float; }
template <> constexpr ir::ElementType elementOf<double>() { return ir::ElementType::Double; }
template <> constexpr ir::ElementType elementOf<Float16>() { return ir::ElementType::Float16; }
template <> constexpr ir::ElementType elementOf<BFloat16>() { return ir::ElementType::BFloat16; }
template <> constexpr ir::ElementType elementOf<int8_t>() { return ir::ElementType::Int8; }
template <> constexpr ir::ElementType elementOf<int16_t>() { return ir::ElementType::Int16; }
template <> constexpr ir::ElementType elementOf<int32_t>() { return ir::ElementType::Int32; }
template <> constexpr ir::ElementType elementOf<int64_t>() { return ir::ElementType::Int64; }
template <> constexpr ir::ElementType elementOf<uint8_t>() { return ir::ElementType::UInt8; }
template <> constexpr ir::ElementType elementOf<uint16_t>() { return ir::ElementType::UInt16; }
template <> constexpr ir::ElementType elementOf<uint32_t>() { return ir::ElementType::UInt32; }
template <> constexpr ir::ElementType elementOf<uint64_t>() { return ir::ElementType::UInt64; }
template <> constexpr ir::ElementType elementOf<Bool>() { return ir::ElementType::Bool; }

template <class T> struct TypeTag { using Type = T; };
template <class... Ts> struct TypeList {};

template <class... As, class... Bs>
constexpr TypeList<As..., Bs...> joined(TypeList<As...>, TypeList<Bs...>) {
  return {};
}

using FloatTypes = TypeList<float, Float16, BFloat16, double>;
using SignedTypes = TypeList<int8_t, int16_t, int32_t, int64_t>;
using IntegerTypes =
    decltype(joined(SignedTypes(), TypeList<uint8_t, uint16_t, uint32_t, uint64_t>()));
using NumericTypes = decltype(joined(FloatTypes(), IntegerTypes()));
using NumericAndBoolTypes = decltype(joined(NumericTypes(), TypeList<Bool>()));

/// Calls `body(TypeTag<T>())`, which returns an llvm::Error, for the type T of the list that stores
/// `element`; an error of the node if there is none.
template <class... Ts, class Body>
llvm::Error dispatch(TypeList<Ts...>, runtime::KernelContext& context, ir::ElementType element,
                     Body&& body) {
  bool found = false;
  llvm::Error result = llvm::Error::success();
  auto attempt = [&](auto tag) {
    if (found || element != elementOf<typename decltype(tag)::Type>())
      return;
    found = true;
    result = body(tag);
  };
  (void)static_cast<bool>(result);
  (attempt(TypeTag<Ts>()), ...);
  if (found)
    return result;
  return context.error(formatted("element type {} is not supported", ir::onnxName(element).str()));
}

/// Calls `body` with an unsigned type of the same width, for operators that only move elements.
template <class Body>
llvm::Error dispatchWidth(runtime::KernelContext& context, ir::ElementType element, Body&& body) {
  switch (runtime::memoryWidth(element).value_or(0)) {
  case 1:
    return body(TypeTag<uint8_t>());
  case 2:
    return body(TypeTag<uint16_t>());
  case 4:
    return body(TypeTag<uint32_t>());
  case 8:
    return body(TypeTag<uint64_t>());
  case 16:
    return body(TypeTag<Wide>());
  default:
    return context.error(
        formatted("element type {} is not supported", ir::onnxName(element).str()));
  }
}

/// Integer arithmetic modulo 2^bits, as in ONNX engines; in C++ overflow would be undefined.
template <class T, class F>
ArithmeticType<T> wrapping(ArithmeticType<T> a, ArithmeticType<T> b, F f) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else
    return f(a, b);
}

} // namespace kvopt::kernels
