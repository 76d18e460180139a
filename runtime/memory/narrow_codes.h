// Floating-point numbers of 8 and 4 bits as codes, and integers of 4 and 2 bits.
#pragma once

#include "ir/late_element_types.h"

#include "llvm/ADT/StringRef.h"

#include <array>
#include <cstdint>
#include <optional>

namespace kvopt::runtime {

/// Whether the type is float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, float8e8m0 or
/// float4e2m1, which ONNX's technical pages define.
bool isFloatCode(ir::ElementType element);

/// Value of each code; for float4e2m1, only the low 4 bits count. Requires isFloatCode. The array
/// is static.
const std::array<float, 256>& numbersOfCodes(ir::ElementType element);

/// Rounding to float8e8m0, which contains only powers of two: away from zero, toward zero, or to
/// the nearest with ties up.
enum class ScaleRounding : uint8_t { up, down, nearest };
std::optional<ScaleRounding> scaleRoundingFromName(llvm::StringRef name);

/// Treatment of numbers outside of a type's range.
struct CodeRounding {
  /// Whether infinity and NaN become the largest finite number of the same sign. float4e2m1, which
  /// has neither, always saturates.
  bool saturate = true;
  ScaleRounding scale = ScaleRounding::up;
};

/// Code of the nearest number of the type, ties to even. A NaN stays NaN if the type has NaNs, and
/// becomes the largest number of float4e2m1. Negative numbers are NaN in float8e8m0. Requires
/// isFloatCode.
uint8_t codeOfNumber(ir::ElementType element, float value, CodeRounding rounding);

/// Smallest and largest number of int4, uint4, int2 or uint2; nullopt for other types.
struct SmallRange {
  int8_t least;
  int8_t most;
};
std::optional<SmallRange> smallRangeOf(ir::ElementType element);

/// Low bits of an integer as a number of a type with that range.
int8_t wrappedInto(SmallRange range, int64_t value);

/// Element type in memory: int8 for int4 and int2, uint8 for uint4 and uint2; other types are
/// unchanged.
ir::ElementType inMemoryAs(ir::ElementType element);

} // namespace kvopt::runtime
