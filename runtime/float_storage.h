// FloatStorage: how floating-point numbers lie in memory; arithmetic on them is in f32.
#pragma once

#include "ir/element_type.h"

#include <cstdint>
#include <optional>

namespace kvopt {

enum class FloatStorage : uint8_t { f32, f16, bf16 };

/// The storage of an element type; none for types that are not computed with in f32.
inline std::optional<FloatStorage> storageOf(ElementType element) {
  switch (element) {
  case ElementType::Float:
    return FloatStorage::f32;
  case ElementType::Float16:
    return FloatStorage::f16;
  case ElementType::BFloat16:
    return FloatStorage::bf16;
  default:
    return std::nullopt;
  }
}

} // namespace kvopt
