// Number of nodes of each operator.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <map>
#include <string>

namespace kvopt::driver {

using OpCounts = std::map<std::string, int64_t>;

/// Number of nodes of every operator, including subgraphs.
OpCounts countOps(ir::Graph& graph);

} // namespace kvopt::driver
