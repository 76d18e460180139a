// The element types that ONNX has had since version 1.20, as numbers that ElementType carries.
#pragma once

#include "ir/element_type.h"

namespace kvopt::ir {

/// Powers of two: eight bits of exponent, no sign.
inline constexpr auto float8E8M0Type = static_cast<ElementType>(24);
/// Four elements to a byte where they are packed, the first in the lowest bits.
inline constexpr auto uint2Type = static_cast<ElementType>(25);
inline constexpr auto int2Type = static_cast<ElementType>(26);

} // namespace kvopt::ir
