// LayeredLayout: places for the boxes of a directed graph, in rows from top to bottom.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace kvopt::cli {

/// Boxes stand in rows so that every edge leads downwards; edges across several rows are led
/// through places of their own between the boxes. In the manner of Sugiyama, Tagawa and Toda
/// (1981): rows by longest paths, order by barycentres. Equal input gives equal output.
class LayeredLayout {
public:
  struct Point {
    double x = 0; ///< middle
    double y = 0; ///< top
  };

  /// A box of that width, which is returned by number. One that is `hanging` stands right above
  /// what it leads to, not as far up as it could.
  size_t addBox(double width, bool isHanging = false);
  /// Both are boxes; edges must not lead around in a circle.
  void addEdge(size_t from, size_t to);

  /// Computes all places. Only once, as the last call.
  void place(double boxHeight, double gapX, double gapY);

  Point box(size_t number) const { return places[number]; }
  /// The points that an edge passes, without its ends, from top to bottom; edges are numbered in
  /// the order in which they were added.
  const std::vector<Point>& bends(size_t edge) const { return bendPoints[edge]; }
  double width() const { return totalWidth; }
  double height() const { return totalHeight; }

private:
  void findRows();
  void splitEdges();
  void orderRows();
  void sortBy(std::vector<size_t>& row, const std::vector<std::vector<size_t>>& neighbours);

  std::vector<double> widths;
  std::vector<bool> hanging;
  std::vector<std::pair<size_t, size_t>> edges;
  std::vector<size_t> rowOf;
  std::vector<std::vector<size_t>> rows;
  std::vector<std::vector<size_t>> above; ///< neighbours in the row above, after edges were split
  std::vector<std::vector<size_t>> below;
  std::vector<size_t> position; ///< within the row
  std::vector<std::vector<size_t>> bendBoxes;
  std::vector<Point> places;
  std::vector<std::vector<Point>> bendPoints;
  double totalWidth = 0;
  double totalHeight = 0;
};

} // namespace kvopt::cli
