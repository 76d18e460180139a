// Removal of rounding from models whose caches hold codes with constant scales.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::unrounding {

/// Whether the cache holds int8 codes of keys or values. Excludes caches whose scales are caches,
/// too (hasQuantizedCaches).
bool holdsCodes(const ir::ManifestCache& cache);

/// Makes those caches hold the unrounded operands of QuantizeLinear as floats: x / scale within
/// [-128, 127]. A DequantizeLinear becomes a multiplication. The result is the same except for
/// rounding, and is a continuous function. Types must have been inferred, and are inferred again.
/// Fails if codes do not come from a QuantizeLinear around zero with float32 scales, or if other
/// operators compute with them; then the model must not be used.
llvm::Error keepUnroundedCodes(ir::Model& model, ir::Manifest& manifest);

} // namespace kvopt::unrounding
