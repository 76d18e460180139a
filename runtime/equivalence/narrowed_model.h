// Models whose caches hold rounded rows, without the rounding.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::runtime {

/// Whether rows of some cache are rounded to a narrower type than they had in the exported model.
bool hasNarrowedCaches(const ir::Manifest& manifest);

/// Makes those caches hold rows of the type that they had. What is left of the rewrite computes
/// what the original does. Types must have been inferred, and are inferred anew. Fails where rows
/// of such a cache do not come from a Cast.
llvm::Error keepExportedRows(ir::Model& model, ir::Manifest& manifest);

} // namespace kvopt::runtime
