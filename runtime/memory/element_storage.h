// The storage of the elements of a tensor, where kernels compute with them in f32.
#pragma once

#include "ir/element_type.h"
#include "runtime/simd/float_storage.h"

#include <optional>

namespace kvopt::runtime {

/// The storage of an element type; none for types that are not computed with in f32.
std::optional<simd::FloatStorage> storageOf(ir::ElementType element);

} // namespace kvopt::runtime
