// How often each operator occurs, before and after.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvopt {

using OpCounts = std::map<std::string, int64_t>;

/// The nodes of every operator, in subgraphs too.
OpCounts countOps(Graph& graph);

/// `MatMul ×2, Softmax`, in the order of names; `–` for none.
SafeText opList(const OpCounts& counts);

/// Lines of a box with a row for every operator of which there are not as many as before; no lines
/// where there is none. `beside` stands to the right of the first rows.
SafeText opTable(const OpCounts& before, const OpCounts& after,
                 const std::vector<SafeText>& beside = {});

} // namespace kvopt
