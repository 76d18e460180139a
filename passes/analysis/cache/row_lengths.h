// Models whose batch rows advance by lengths of their own.
#pragma once

#include "ir/graph.h"

namespace kvopt::analysis {

/// Whether some GroupQueryAttention computes how many rows are valid in each batch row from the
/// elements of an input, as the sum of an attention mask, and not from extents alone. Rows of a
/// padded batch are then of different lengths, and what is beyond them is not defined.
bool countsRowsByInput(const ir::Graph& graph);

} // namespace kvopt::analysis
