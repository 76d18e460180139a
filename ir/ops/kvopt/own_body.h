// Which functions under the names of ai.kvopt's operators kvopt itself has written.
#pragma once

#include "ir/op.h"

namespace kvopt::ir {

/// The BodyRule of every operator of ai.kvopt: the function is the body that this version of kvopt,
/// or an earlier one (earlier_bodies.h), writes for the operator, and written for operands and
/// attributes like those of each call. Engines run the function, and kvopt runs its kernel: with
/// another function they would compute something else. The cost is linear in the function's nodes.
/// Errors name the function, and a call that does not fit.
llvm::Error checkOwnBody(const Function& function, llvm::ArrayRef<const Node*> calls);

} // namespace kvopt::ir
