// How often each operator occurs, before and after.
#pragma once

#include "driver/op_counts.h"
#include "support/safe_text.h"

#include <vector>

namespace kvopt::cli {

/// `MatMul ×2, Softmax`, in the order of names; `–` for none.
SafeText opList(const driver::OpCounts& counts);

/// Lines of a box with a row for every operator of which there are not as many as before; no lines
/// where there is none. `beside` stands to the right of the first rows.
SafeText opTable(const driver::OpCounts& before, const driver::OpCounts& after,
                 const std::vector<SafeText>& beside = {});

} // namespace kvopt::cli
