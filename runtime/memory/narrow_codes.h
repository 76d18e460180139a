// Floating-point numbers of 8 and 4 bits as codes, and integers of 4 and 2 bits.
#pragma once

#include "ir/late_element_types.h"

#include "llvm/ADT/StringRef.h"

#include <array>
#include <cstdint>
#include <optional>

namespace kvopt::runtime {

/// float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, float8e8m0 and float4e2m1, as the
/// technical pages of ONNX define them.
bool isFloatCode(ir::ElementType element);

/// The number that each code stands for; of float4e2m1 only the low 4 bits count. Requires
/// isFloatCode. The array lives forever.
const std::array<float, 256>& numbersOfCodes(ir::ElementType element);

/// How numbers become float8e8m0, which has powers of two only: away from zero, towards zero, or to
/// the nearest with halves up.
enum class ScaleRounding : uint8_t { up, down, nearest };
std::optional<ScaleRounding> scaleRoundingFromName(llvm::StringRef name);

/// What becomes of numbers that a type does not have.
struct CodeRounding {
  /// The largest finite number of the same sign instead of infinity or NaN. float4e2m1, which has
  /// neither, always does so.
  bool saturate = true;
  ScaleRounding scale = ScaleRounding::up;
};

/// The code of the nearest number of the type, halves to even. A NaN stays one where the type has
/// NaNs, and is the largest number of float4e2m1. Negative numbers are NaN in float8e8m0. Requires
/// isFloatCode.
uint8_t codeOfNumber(ir::ElementType element, float value, CodeRounding rounding);

/// Smallest and largest number of int4, uint4, int2 or uint2; nullopt for other types.
struct SmallRange {
  int8_t least;
  int8_t most;
};
std::optional<SmallRange> smallRangeOf(ir::ElementType element);

/// The low bits of an integer as a number of a type with that range.
int8_t wrappedInto(SmallRange range, int64_t value);

/// int8 for int4 and int2, uint8 for uint4 and uint2, whose elements in memory are those of that
/// type; any other type itself.
ir::ElementType inMemoryAs(ir::ElementType element);

} // namespace kvopt::runtime
