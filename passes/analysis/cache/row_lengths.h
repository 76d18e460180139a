// Models whose batch rows advance by different lengths.
#pragma once

#include "ir/graph.h"

namespace kvopt::analysis {

/// Whether some GroupQueryAttention computes the number of valid rows in each batch row from the
/// elements of an input, as the sum of an attention mask, and not from extents alone. Rows of a
/// padded batch then have different lengths, and the contents after them are undefined.
bool countsRowsByInput(const ir::Graph& graph);

} // namespace kvopt::analysis
