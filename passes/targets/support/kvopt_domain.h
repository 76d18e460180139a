// Leaving ai.kvopt behind: a model that was lowered on from its operators.
#pragma once

#include "ir/model.h"

namespace kvopt::targets {

/// Takes the functions of ai.kvopt that no node calls out of the model, and the domain's import and
/// the IR version that functions need where none is left; `irVersion` is what the model had before.
void dropKvoptDomain(ir::Model& model, int64_t irVersion);

} // namespace kvopt::targets
