// What a step writes to caches.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

#include <map>
#include <optional>
#include <string>

namespace kvopt::driver {

/// Bytes that a step of one token of one sequence writes to caches, or to copies of them, after
/// `context` - 1 earlier tokens: the new row of each cache, and all earlier rows of those that come
/// out as other tensors than they went in. States and caches that are only read are left out.
/// `graph` is the model's. nullopt where an extent is not fixed.
std::optional<int64_t> cacheBytesPerToken(const ir::Manifest& manifest, const ir::Graph& graph,
                                          int64_t context);

/// The number of tokens for which reports say what a step costs.
inline constexpr int64_t reportedContext = 4096;

/// Bytes that caches of one sequence take with room for `context` tokens, or for the capacity where
/// it is fixed. Caches that are only read and states are left out. nullopt where an extent is not
/// fixed.
std::optional<int64_t> allocatedCacheBytes(const ir::Manifest& manifest, int64_t context);

/// Operators that update caches in place where a program gives them one buffer as past and present.
struct InPlaceUpdates {
  std::map<std::string, int64_t> operators;  ///< how many caches each updates
  std::map<std::string, std::string> byPast; ///< input of a cache → operator
};
/// Those whose past is an input and whose present is an output of the same extents.
InPlaceUpdates inPlaceUpdates(const ir::Graph& graph);

} // namespace kvopt::driver
