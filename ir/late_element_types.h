// Element types of ONNX 1.20 and later, as numbers that fit into ElementType.
#pragma once

#include "ir/element_type.h"

namespace kvopt::ir {

/// Powers of two: eight exponent bits, no sign.
inline constexpr auto float8E8M0Type = static_cast<ElementType>(24);
/// Two-bit integers, packed four to a byte with the first in the lowest bits.
inline constexpr auto uint2Type = static_cast<ElementType>(25);
inline constexpr auto int2Type = static_cast<ElementType>(26);

} // namespace kvopt::ir
