// How the inputs, outputs and caches of two sessions differ, before either takes a step.
#pragma once

#include "runtime/session/session.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::runtime {

/// For each cache of `a`, the index of the cache of `b` that it is compared with: the one of the
/// same name or, where there is none, the one of the same layer, kind and role. nullopt where there
/// is neither.
std::vector<std::optional<size_t>> pairCaches(const Session& a, const Session& b);

/// What a program that drives `a` would miss in `b`, a sentence each: outputs and caches that are
/// missing, additional, renamed or in another order, inputs that are missing, additional or of
/// another element type, and caches whose present has another name. Inputs and outputs that carry a
/// cache or a length are compared as such. Inputs that nothing in `a` reads are not missed.
std::vector<std::string> interfaceDifferences(const Session& a, const Session& b);

} // namespace kvopt::runtime
