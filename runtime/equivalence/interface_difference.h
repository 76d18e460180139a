// How the inputs, outputs and caches of two sessions differ, before either takes a step.
#pragma once

#include "runtime/session/session.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::runtime {

/// Two caches, by index, that hold the same rows. One of them may be a part of the other
/// (`isPartOf`), whose other parts are in pairs of their own.
struct CachePair {
  size_t first = 0;
  size_t second = 0;
};

/// Each cache of `a` with the cache of `b` of the same name, that is a part of it, or that it is a
/// part of; where there is none, with the one of the same layer, kind and role. A cache without any
/// is in no pair.
std::vector<CachePair> pairCaches(const Session& a, const Session& b);

/// What a program that drives `a` would miss in `b`, a sentence each: outputs and caches that are
/// missing, additional, renamed or in another order, inputs that are missing, additional or of
/// another element type, and caches whose present has another name. Inputs and outputs that carry a
/// cache or a length are compared as such. Inputs that nothing in `a` reads are not missed, and
/// neither are those of `firstOfB`, whose outputs are inputs of `b`.
std::vector<std::string> interfaceDifferences(const Session& a, const Session& b,
                                              const Session* firstOfB = nullptr);

} // namespace kvopt::runtime
