// Rows of numbers, quantized for a session.
#pragma once

#include "runtime/session/session.h"

namespace kvopt::runtime {

/// Puts what the caches of `exact` hold into those of `quantized`, in place of all that they hold:
/// as codes and scales where its rows are codes, as the operators that append rows make them. Fails
/// where a cache has no counterpart, or a layout whose rows are not side by side.
llvm::Error seedQuantized(Session& quantized, const Session& exact);

} // namespace kvopt::runtime
