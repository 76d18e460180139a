// Differences between the inputs, outputs and caches of two sessions, found before any step.
#pragma once

#include "runtime/session/session.h"

#include <string>
#include <vector>

namespace kvopt::runtime {

/// Differences that a program for `a` would meet in `b`, one sentence each: outputs and caches that
/// are missing, additional, renamed or reordered; inputs that are missing, additional or of another
/// element type; and caches with another name of their present. Inputs and outputs for caches and
/// lengths are compared as such. Inputs that `a` does not read are ignored, and so are those of
/// `firstOfB`, whose outputs are inputs of `b`.
std::vector<std::string> interfaceDifferences(const Session& a, const Session& b,
                                              const Session* firstOfB = nullptr);

} // namespace kvopt::runtime
