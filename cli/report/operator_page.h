// The operators of ai.kvopt as a page.
#pragma once

#include "ir/op.h"

#include <string>

namespace kvopt::cli {

/// The page docs/operators.md: what each operator computes, its operands, results and attributes,
/// and which results are written into an operand's memory.
std::string operatorsMarkdown(const ir::OpRegistry& registry);

} // namespace kvopt::cli
