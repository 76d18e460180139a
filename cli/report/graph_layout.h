// Positions of the boxes and edges of a directed graph, computed by Graphviz.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace kvopt::cli {

/// Positions of boxes and edges. x increases to the right and y downward.
struct GraphLayout {
  struct Point {
    double x = 0;
    double y = 0;
  };

  double width = 0;
  double height = 0;
  std::vector<Point> boxes; ///< centers of the boxes
  /// For each edge: a start point, followed by three points for each cubic Bézier curve.
  std::vector<std::vector<Point>> edges;
};

struct GraphSpacing {
  double boxHeight = 0;
  double gapX = 0; ///< distance between neighbors in a row
  double gapY = 0; ///< distance between rows
};

/// Arranges boxes of these widths in rows, so that edges lead downward, with Graphviz's `dot`. An
/// edge is a pair of different indices of boxes; edges must not form cycles. Graphviz receives only
/// numbers and opens no files. The layout is deterministic.
///
/// The time is quadratic in the edges' lengths in rows: the caller limits their number.
llvm::Expected<GraphLayout> layOutGraph(llvm::ArrayRef<double> widths,
                                        llvm::ArrayRef<std::pair<size_t, size_t>> edges,
                                        const GraphSpacing& spacing);

} // namespace kvopt::cli
