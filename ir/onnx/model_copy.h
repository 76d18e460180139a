// Copies of models that share the contents of constants.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// A model that says the same, to be edited and run by itself; it must not be written but by
/// FamilyExport::addSubmodel. Contents of
/// initializers that are large are the original's, which stay as long as either needs them; types
/// that were inferred are left behind. Fails where the model could not be written for other reasons
/// than its size.
llvm::Expected<std::unique_ptr<Model>> copySharingConstants(const Model& model);

} // namespace kvopt::ir
