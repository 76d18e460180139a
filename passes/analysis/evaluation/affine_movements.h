// Dependence of moved elements' positions on extents.
#pragma once

#include "passes/analysis/evaluation/affine_numbers.h"

namespace kvopt::analysis {

/// Walks the numbers by which the node of `result` moves elements: adds the breakpoints of slices
/// and indices to `numbers`, or ends the argument. Moved operands are not walked.
void walkMovement(const ir::Value& result, AffineNumbers& numbers);

/// Ends the argument if elements of a table of constants are selected by numbers that are not
/// constants, unless the table is a progression.
void walkLookUp(const ir::Node& node, const ir::Value& table, bool isByConstant,
                AffineNumbers& numbers);

} // namespace kvopt::analysis
