// Counting of operators.
#include "driver/op_counts.h"

namespace kvopt::driver {
using namespace ir;

OpCounts countOps(Graph& graph) {
  OpCounts counts;
  forEachGraph(graph, [&](Graph& visited) {
    for (const Node& node : visited.nodes())
      ++counts[node.op().str()];
  });
  return counts;
}

} // namespace kvopt::driver
