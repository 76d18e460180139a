// Removal of ai.kvopt from a model whose ai.kvopt nodes were lowered further.
#pragma once

#include "ir/model.h"

namespace kvopt::targets {

/// Removes the functions of ai.kvopt that no node calls. If none is left, also removes the import
/// of the domain, and restores `irVersion`, the model's version before, unless other functions
/// remain.
void dropKvoptDomain(ir::Model& model, int64_t irVersion);

} // namespace kvopt::targets
