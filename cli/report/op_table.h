// Lists and tables of the number of nodes of each operator.
#pragma once

#include "driver/op_counts.h"
#include "support/safe_text.h"

#include <vector>

namespace kvopt::cli {

/// List such as `MatMul ×2, Softmax`, sorted by name; `–` if it is empty.
SafeText opList(const driver::OpCounts& counts);

/// Lines of a box with a row for every operator whose number of nodes has changed; empty if there
/// is none. The lines of the last argument are to the right of the first rows.
SafeText opTable(const driver::OpCounts& before, const driver::OpCounts& after,
                 const std::vector<SafeText>& beside = {});

} // namespace kvopt::cli
