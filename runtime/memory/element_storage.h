// Storage of tensor elements, for kernels that compute in f32.
#pragma once

#include "ir/element_type.h"
#include "runtime/simd/float_storage.h"

#include <optional>

namespace kvopt::runtime {

/// Storage of an element type; nullopt for types that are not computed in f32.
std::optional<simd::FloatStorage> storageOf(ir::ElementType element);

} // namespace kvopt::runtime
