// Removal of rounding from models whose caches hold rounded rows.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::unrounding {

/// Whether rows of a cache are rounded to a narrower type than in the exported model.
bool hasNarrowedCaches(const ir::Manifest& manifest);

/// Makes those caches hold rows of their original type, so that the rest of the rewrite computes
/// the original's results. Types must have been inferred, and are inferred again. Fails if rows of
/// such a cache are not the result of a Cast.
llvm::Error keepExportedRows(ir::Model& model, ir::Manifest& manifest);

} // namespace kvopt::unrounding
