// Which operators draw their results anew in every run.
#pragma once

#include "ir/op_name.h"

namespace kvopt::ir {

/// Whether two runs over the same operands may give different results. The name decides, in every
/// domain. Dropout counts: whether it drops anything is for an operand to say.
bool isRandom(OpName op);

} // namespace kvopt::ir
