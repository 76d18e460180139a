// Operators whose results differ from run to run.
#pragma once

#include "ir/op_name.h"

namespace kvopt::ir {

/// Whether two runs on the same operands may give different results. Only the name is compared, in
/// every domain. Dropout counts, although an operand may turn it off.
bool isRandom(OpName op);

} // namespace kvopt::ir
