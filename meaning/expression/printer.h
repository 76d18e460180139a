// Formulas as text for people.
#pragma once

#include "meaning/expression/formulas.h"

namespace kvopt::meaning {

/// Text such as "j <= P + i && 0 < attention_mask[b, j]". Indices that reductions bind are k, l, m,
/// … by level. Of a formula with more than `most` nodes, an ellipsis is the rest.
std::string printed(const Formulas& formulas, Expr expr, size_t most = 400);

} // namespace kvopt::meaning
