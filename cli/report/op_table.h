// Number of nodes of each operator, before and after.
#pragma once

#include "driver/op_counts.h"
#include "support/safe_text.h"

#include <vector>

namespace kvopt::cli {

/// List such as `MatMul ×2, Softmax`, sorted by name; `–` if it is empty.
SafeText opList(const driver::OpCounts& counts);

/// Lines of a box with a row for every operator whose number of nodes has changed; empty if there
/// is none. `beside` is printed to the right of the first rows.
SafeText opTable(const driver::OpCounts& before, const driver::OpCounts& after,
                 const std::vector<SafeText>& beside = {});

} // namespace kvopt::cli
