// FloatStorage: storage format of floating-point numbers; arithmetic on them is in f32.
#pragma once

#include <cstdint>

namespace kvopt::simd {

enum class FloatStorage : uint8_t { f32, f16, bf16 };

} // namespace kvopt::simd
