// Places for the boxes and edges of a directed graph, computed by Graphviz.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace kvopt::cli {

/// Where boxes and edges are drawn. x grows to the right and y downward.
struct GraphLayout {
  struct Point {
    double x = 0;
    double y = 0;
  };

  double width = 0;
  double height = 0;
  std::vector<Point> boxes; ///< their centers
  /// One per edge: a start and three more points for each cubic Bézier curve that follows.
  std::vector<std::vector<Point>> edges;
};

struct GraphSpacing {
  double boxHeight = 0;
  double gapX = 0; ///< between neighbors in a row
  double gapY = 0; ///< between rows
};

/// Arranges boxes of these widths in rows, so that edges lead downward, with Graphviz's `dot`. An
/// edge is a pair of different indices of boxes; edges contain no cycle. Graphviz receives numbers
/// and no text, and opens no file. The same graph always has the same layout.
///
/// The time grows with the square of the edges' lengths in rows: the caller limits their number.
llvm::Expected<GraphLayout> layOutGraph(llvm::ArrayRef<double> widths,
                                        llvm::ArrayRef<std::pair<size_t, size_t>> edges,
                                        const GraphSpacing& spacing);

} // namespace kvopt::cli
