// One loop for each element type.
#include "meaning/numbers/element_access.h"

#include "support/half.h"
#include <bit>
#include <cmath>
#include <cstring>

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

double realOf(float value) { return static_cast<double>(value); }
double realOf(double value) { return value; }
double realOf(Half value) { return static_cast<double>(f16ToFloat(value.bits)); }
double realOf(Brain value) { return static_cast<double>(bf16ToFloat(value.bits)); }

/// The float from which rounding to a narrower type gives what rounding the double gives: where a
/// float is not exact, its last bit is set (rounding to odd).
float toOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value || std::isnan(value))
    return nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (bits & 1)
    return nearest;
  // The neighbor on the side of the value has an odd last bit.
  const bool isLarger = std::abs(value) > std::abs(static_cast<double>(nearest));
  bits += isLarger ? 1u : ~0u;
  return std::bit_cast<float>(bits);
}

void assign(float& to, double value) { to = static_cast<float>(value); }
void assign(double& to, double value) { to = value; }
void assign(Half& to, double value) { to.bits = floatToF16(toOdd(value)); }
void assign(Brain& to, double value) { to.bits = floatToBf16(toOdd(value)); }

template <class Use> void withIntegers(Type type, Use use) {
  switch (type) {
  case Type::Bool:
  case Type::UInt8:
  case Type::UInt4:
    return use(uint8_t());
  case Type::Int8:
  case Type::Int4:
    return use(int8_t());
  case Type::UInt16:
    return use(uint16_t());
  case Type::Int16:
    return use(int16_t());
  case Type::UInt32:
    return use(uint32_t());
  case Type::Int32:
    return use(int32_t());
  case Type::UInt64:
    return use(uint64_t());
  case Type::Int64:
    return use(int64_t());
  default:
    return;
  }
}

template <class Use> void withReals(Type type, Use use) {
  switch (type) {
  case Type::Float:
    return use(float());
  case Type::Double:
    return use(double());
  case Type::Float16:
    return use(Half());
  case Type::BFloat16:
    return use(Brain());
  default:
    return;
  }
}

/// Calls f with numbers from 0 on and their multiples.
template <class F> void inSteps(int64_t step, size_t count, F f) {
  if (step == 1)
    for (size_t k = 0; k < count; ++k)
      f(k, static_cast<int64_t>(k));
  else
    for (size_t k = 0; k < count; ++k)
      f(k, static_cast<int64_t>(k) * step);
}

} // namespace

unsigned widthInMemory(Type type) {
  unsigned width = 0;
  withIntegers(type, [&](auto sample) { width = sizeof(sample); });
  withReals(type, [&](auto sample) { width = sizeof(sample); });
  return width;
}

void loadIntegers(Type type, const std::byte* data, const int64_t* places, size_t count,
                  int64_t* result) {
  withIntegers(type, [&](auto sample) {
    const auto* elements = reinterpret_cast<const decltype(sample)*>(data);
    for (size_t k = 0; k < count; ++k)
      result[k] = static_cast<int64_t>(elements[places[k]]);
  });
}

void loadReals(Type type, const std::byte* data, const int64_t* places, size_t count,
               double* result) {
  withReals(type, [&](auto sample) {
    const auto* elements = reinterpret_cast<const decltype(sample)*>(data);
    for (size_t k = 0; k < count; ++k)
      result[k] = realOf(elements[places[k]]);
  });
}

void loadIntegers(Type type, const std::byte* data, int64_t place, int64_t step, size_t count,
                  int64_t* result) {
  withIntegers(type, [&](auto sample) {
    const auto* elements = reinterpret_cast<const decltype(sample)*>(data) + place;
    inSteps(step, count,
            [=](size_t k, int64_t at) { result[k] = static_cast<int64_t>(elements[at]); });
  });
}

void loadReals(Type type, const std::byte* data, int64_t place, int64_t step, size_t count,
               double* result) {
  withReals(type, [&](auto sample) {
    const auto* elements = reinterpret_cast<const decltype(sample)*>(data) + place;
    inSteps(step, count, [=](size_t k, int64_t at) { result[k] = realOf(elements[at]); });
  });
}

void storeIntegers(Type type, std::byte* data, int64_t place, const int64_t* values, size_t count) {
  withIntegers(type, [&](auto sample) {
    auto* elements = reinterpret_cast<decltype(sample)*>(data) + place;
    for (size_t k = 0; k < count; ++k)
      elements[k] = static_cast<decltype(sample)>(values[k]);
  });
}

void storeReals(Type type, std::byte* data, int64_t place, const double* values, size_t count) {
  withReals(type, [&](auto sample) {
    auto* elements = reinterpret_cast<decltype(sample)*>(data) + place;
    for (size_t k = 0; k < count; ++k)
      assign(elements[k], values[k]);
  });
}

} // namespace kvopt::meaning
