// Bytes that caches take, and bytes that a step writes to them.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

#include <map>
#include <optional>
#include <string>

namespace kvopt::driver {

/// Bytes that a step of one token of one sequence writes to caches, or to copies of them, after
/// `context` - 1 earlier tokens: the new row of each cache, and all earlier rows of caches whose
/// present is another tensor than the past. States and read-only caches do not count. `graph` is
/// the model's. nullopt if an extent is not fixed.
std::optional<int64_t> cacheBytesPerToken(const ir::Manifest& manifest, const ir::Graph& graph,
                                          int64_t context);

/// Number of tokens for which reports state the cost of a step.
inline constexpr int64_t reportedContext = 4096;

/// Bytes of the caches of one sequence with room for `context` tokens, or for the capacity if it is
/// fixed. States and read-only caches do not count. nullopt if an extent is not fixed.
std::optional<int64_t> allocatedCacheBytes(const ir::Manifest& manifest, int64_t context);

/// Operators that update caches in place if a program binds one buffer as past and present.
struct InPlaceUpdates {
  std::map<std::string, int64_t> operators;  ///< number of caches that each updates
  std::map<std::string, std::string> byPast; ///< input of a cache → operator
};
/// The in-place updates of caches whose past is an input and whose present is an output of the same
/// extents.
InPlaceUpdates inPlaceUpdates(const ir::Graph& graph);

} // namespace kvopt::driver
