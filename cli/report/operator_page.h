// The operators of ai.kvopt as a page.
#pragma once

#include "ir/op.h"

#include <string>

namespace kvopt::cli {

/// The page docs/operators.md: the computation of each operator, its operands, results and
/// attributes, and the results that are written into an operand's memory.
std::string operatorsMarkdown(const ir::OpRegistry& registry);

} // namespace kvopt::cli
