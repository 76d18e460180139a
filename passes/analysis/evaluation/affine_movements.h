// How the places that elements are moved to depend on extents.
#pragma once

#include "passes/analysis/evaluation/affine_numbers.h"

namespace kvopt::analysis {

/// How the node of `result` moves elements, with the numbers that it does so by: adds breakpoints
/// of slices and indices to `numbers`, or ends the argument. Moved operands are not walked.
void walkMovement(const ir::Value& result, AffineNumbers& numbers);

/// Ends the argument where elements of a table of constants are picked by numbers that are not
/// constants, unless the table is a progression.
void walkLookUp(const ir::Node& node, const ir::Value& table, bool isByConstant,
                AffineNumbers& numbers);

} // namespace kvopt::analysis
