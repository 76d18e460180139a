// How the inputs, outputs and caches of two sessions differ, before either takes a step.
#pragma once

#include "runtime/session/session.h"

#include <string>
#include <vector>

namespace kvopt::runtime {

/// What a program that drives `a` would miss in `b`, a sentence each: outputs and caches that are
/// missing, additional, renamed or in another order, inputs that are missing, additional or of
/// another element type, and caches whose present has another name. Inputs and outputs that carry a
/// cache or a length are compared as such. Inputs that nothing in `a` reads are not missed, and
/// neither are those of `firstOfB`, whose outputs are inputs of `b`.
std::vector<std::string> interfaceDifferences(const Session& a, const Session& b,
                                              const Session* firstOfB = nullptr);

} // namespace kvopt::runtime
