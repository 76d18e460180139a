// Models whose caches hold codes with constant scales, without the rounding to codes.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::runtime {

/// Whether it is a cache of keys or values that holds codes of int8. Those with scales that are
/// caches of their own (hasQuantizedCaches) are others.
bool holdsCodes(const ir::ManifestCache& cache);

/// Makes those caches hold what QuantizeLinear rounds, as floats: x / scale within [-128, 127]. A
/// DequantizeLinear becomes a multiplication. What is left computes the same but for rounding, and
/// continuously. Types must have been inferred, and are inferred anew. Fails where codes do not
/// come from a QuantizeLinear around zero with scales of float32, or something computes with them;
/// the model must not be used then.
llvm::Error keepUnroundedCodes(ir::Model& model, ir::Manifest& manifest);

} // namespace kvopt::runtime
