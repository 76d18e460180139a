// Recognition of functions that kvopt itself has written for its operators.
#pragma once

#include "ir/op.h"

namespace kvopt::ir {

/// BodyRule of every operator of ai.kvopt: the function must be the body that this version of
/// kvopt, or an earlier one (earlier_bodies.h), writes for the operator, for operands and
/// attributes like those of each call. Engines run the function, and kvopt runs its kernel: with
/// another function they would compute different results. Linear in the number of the function's
/// nodes. Errors name the function, and a call that does not fit.
llvm::Error checkOwnBody(const Function& function, llvm::ArrayRef<const Node*> calls);

} // namespace kvopt::ir
