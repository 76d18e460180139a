// FloatStorage: how floating-point numbers lie in memory; arithmetic on them is in f32.
#pragma once

#include <cstdint>
#include <optional>

namespace kvopt {

enum class ElementType : int32_t;
enum class FloatStorage : uint8_t { f32, f16, bf16 };

/// The storage of an element type; none for types that are not computed with in f32.
std::optional<FloatStorage> storageOf(ElementType element);

} // namespace kvopt
