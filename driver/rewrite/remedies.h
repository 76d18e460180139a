// Remedies: options with which a model is rewritten that was refused without them.
#pragma once

#include "driver/rewrite/request.h"
#include "driver/rewrite/rewrite.h"
#include "driver/toolkit.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Options that are not in `refused` and with which at least one of the forms takes layers of the
/// model: each is tried alone, without a comparison. Empty for requests that add caches or free
/// extents.
std::vector<Remedy> remediesFor(const ModelSource& source, const RewriteRequest& refused,
                                llvm::ArrayRef<Form> forms, const Toolkit& toolkit);

/// Removes parts of hints that name an option which is none of the remedies.
void keepRemedies(RefusedModel& refused);

} // namespace kvopt::driver
