// Elementwise comparison in units of the last place.
#include "runtime/equivalence/comparison.h"

#include "runtime/exec/input_binding.h"
#include "runtime/memory/narrow_codes.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// Number of one element, and a key; differences of keys count representable numbers.
struct Element {
  double value = 0;
  uint64_t bits = 0;
  /// Monotonic in the value; equal for both zeros.
  uint64_t key = 0;
};

constexpr uint64_t middle = uint64_t{1} << 63;

template <typename Bits> uint64_t orderedKey(Bits bits) {
  constexpr Bits sign = Bits{1} << (sizeof(Bits) * 8 - 1);
  uint64_t magnitude = static_cast<Bits>(bits & static_cast<Bits>(~sign));
  return (bits & sign) != 0 ? middle - magnitude : middle + magnitude;
}

template <typename T> T loadAs(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

template <typename T> Element integerElement(const std::byte* data) {
  T value = loadAs<T>(data);
  auto bits = static_cast<uint64_t>(value);
  return {static_cast<double>(value), bits, std::is_signed_v<T> ? bits + middle : bits};
}

/// A number with 8 or 4 bits; its key counts codes.
Element codeElement(ElementType type, const std::byte* data) {
  const auto code = loadAs<uint8_t>(data);
  const auto aligned =
      static_cast<uint8_t>(type == ElementType::Float4E2M1 ? unsigned{code} << 4 : code);
  const double number = double{numbersOfCodes(type)[code]};
  return {number, code, type == float8E8M0Type ? code : orderedKey(aligned)};
}

Element load(ElementType stored, const std::byte* data) {
  if (isFloatCode(stored))
    return codeElement(stored, data);
  switch (inMemoryAs(stored)) {
  case ElementType::Float: {
    auto bits = loadAs<uint32_t>(data);
    return {double{std::bit_cast<float>(bits)}, bits, orderedKey(bits)};
  }
  case ElementType::Double: {
    auto bits = loadAs<uint64_t>(data);
    return {std::bit_cast<double>(bits), bits, orderedKey(bits)};
  }
  case ElementType::Float16: {
    auto bits = loadAs<uint16_t>(data);
    return {double{f16ToFloat(bits)}, bits, orderedKey(bits)};
  }
  case ElementType::BFloat16: {
    auto bits = loadAs<uint16_t>(data);
    return {double{bf16ToFloat(bits)}, bits, orderedKey(bits)};
  }
  case ElementType::Int8:
    return integerElement<int8_t>(data);
  case ElementType::Int16:
    return integerElement<int16_t>(data);
  case ElementType::Int32:
    return integerElement<int32_t>(data);
  case ElementType::Int64:
    return integerElement<int64_t>(data);
  case ElementType::Bool:
  case ElementType::UInt8:
    return integerElement<uint8_t>(data);
  case ElementType::UInt16:
    return integerElement<uint16_t>(data);
  case ElementType::UInt32:
    return integerElement<uint32_t>(data);
  default:
    return integerElement<uint64_t>(data);
  }
}

bool isComparable(ElementType type) {
  return type == ElementType::Bool || isFloatingPoint(type) || isInteger(type);
}

/// Comparison of one pair.
Comparison compareElements(const Element& a, const Element& b, Tolerance tolerance) {
  Comparison pair;
  pair.compared = 1;
  pair.worstA = a.value;
  pair.worstB = b.value;
  pair.bitExact = a.bits == b.bits;
  bool aNan = std::isnan(a.value);
  bool bNan = std::isnan(b.value);
  if (aNan || bNan) {
    if (aNan != bNan) {
      pair.nanMismatch = true;
      pair.maxAbs = std::numeric_limits<double>::infinity();
      pair.maxUlp = UINT64_MAX;
      pair.violations = 1;
    }
    return pair;
  }
  uint64_t distance = a.key > b.key ? a.key - b.key : b.key - a.key;
  pair.maxUlp = distance;
  if (distance == 0)
    return pair;
  pair.maxAbs = std::fabs(a.value - b.value);
  // Integers beyond 2^53 may differ although their doubles are equal.
  if (pair.maxAbs == 0)
    pair.maxAbs = static_cast<double>(distance);
  bool isFinite = std::isfinite(a.value) && std::isfinite(b.value);
  if (!isFinite || !(pair.maxAbs <= tolerance.absolute + tolerance.relative * std::fabs(b.value)))
    pair.violations = 1;
  return pair;
}

} // namespace

void Comparison::merge(const Comparison& other) {
  if (other.maxAbs > maxAbs) {
    worst = other.worst;
    worstA = other.worstA;
    worstB = other.worstB;
    maxAbs = other.maxAbs;
  }
  compared += other.compared;
  violations += other.violations;
  maxUlp = std::max(maxUlp, other.maxUlp);
  bitExact &= other.bitExact;
  nanMismatch |= other.nanMismatch;
}

bool isNan(const TensorView& view, llvm::ArrayRef<int64_t> index) {
  if (!isFloatingPoint(view.element) && !isFloatCode(view.element))
    return false;
  int64_t offset = 0;
  for (unsigned axis = 0; axis < view.rank(); ++axis)
    offset += index[axis] * view.strides[axis];
  return std::isnan(load(view.element, view.data + offset * *memoryWidth(view.element)).value);
}

llvm::Expected<Comparison>
compareTensors(const TensorView& a, const TensorView& b, Tolerance tolerance,
               llvm::function_ref<bool(llvm::ArrayRef<int64_t>)> select) {
  if (a.element != b.element)
    return invalid("the element types {} and {} differ", onnxName(a.element), onnxName(b.element));
  if (a.shape != b.shape)
    return invalid("the shapes {} and {} differ", extentsText(a.shape), extentsText(b.shape));
  if (!isComparable(a.element))
    return unsupported("elements of type {} cannot be compared", onnxName(a.element));
  Comparison total;
  int64_t width = *memoryWidth(a.element);
  Extents index(a.rank(), 0);
  int64_t offsetA = 0;
  int64_t offsetB = 0;
  int64_t count = a.elementCount();
  for (int64_t done = 0; done < count; ++done) {
    if (!select || select(index)) {
      Comparison pair = compareElements(load(a.element, a.data + offsetA * width),
                                        load(b.element, b.data + offsetB * width), tolerance);
      if (pair.maxAbs > total.maxAbs)
        pair.worst = index;
      total.merge(pair);
    }
    for (unsigned axis = a.rank(); axis-- > 0;) {
      offsetA += a.strides[axis];
      offsetB += b.strides[axis];
      if (++index[axis] < a.shape[axis])
        break;
      offsetA -= a.strides[axis] * a.shape[axis];
      offsetB -= b.strides[axis] * b.shape[axis];
      index[axis] = 0;
    }
  }
  return total;
}

} // namespace kvopt::runtime
