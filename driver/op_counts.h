// How often each operator occurs.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <map>
#include <string>

namespace kvopt::driver {

using OpCounts = std::map<std::string, int64_t>;

/// The nodes of every operator, in subgraphs too.
OpCounts countOps(ir::Graph& graph);

} // namespace kvopt::driver
