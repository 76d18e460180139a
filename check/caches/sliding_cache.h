// Sliding caches: the last rows in their order.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

namespace kvopt::check {

/// Whether a model moves the rows of a ring, so that the newest one is always the last: its present
/// is a slice of its past and the new rows. Other rings have each row in a slot of its own.
bool isSliding(const ir::Graph& graph, const ir::ManifestCache& cache);

} // namespace kvopt::check
