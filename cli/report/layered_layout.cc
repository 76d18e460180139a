// Rows, order, coordinates.
#include "cli/report/layered_layout.h"

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace kvopt::cli {
namespace {

constexpr double bendWidth = 6;
constexpr unsigned sweeps = 8;

} // namespace

size_t LayeredLayout::addBox(double width, bool isHanging) {
  widths.push_back(width);
  hanging.push_back(isHanging);
  return widths.size() - 1;
}

void LayeredLayout::addEdge(size_t from, size_t to) {
  assert(from < widths.size() && to < widths.size() && from != to);
  edges.emplace_back(from, to);
}

void LayeredLayout::findRows() {
  const size_t count = widths.size();
  std::vector<std::vector<size_t>> successors(count);
  std::vector<size_t> open(count, 0);
  for (const auto& [from, to] : edges) {
    successors[from].push_back(to);
    ++open[to];
  }
  std::vector<size_t> ready;
  for (size_t box = 0; box < count; ++box)
    if (open[box] == 0)
      ready.push_back(box);
  rowOf.assign(count, 0);
  for (size_t i = 0; i < ready.size(); ++i)
    for (size_t next : successors[ready[i]]) {
      rowOf[next] = std::max(rowOf[next], rowOf[ready[i]] + 1);
      if (--open[next] == 0)
        ready.push_back(next);
    }
  assert(ready.size() == count && "edges must not lead around in a circle");
  for (size_t box = 0; box < count; ++box)
    if (hanging[box] && !successors[box].empty()) {
      size_t nearest = SIZE_MAX;
      for (size_t next : successors[box])
        nearest = std::min(nearest, rowOf[next]);
      rowOf[box] = nearest - 1;
    }
}

void LayeredLayout::splitEdges() {
  above.resize(widths.size());
  below.resize(widths.size());
  auto join = [&](size_t upper, size_t lower) {
    below[upper].push_back(lower);
    above[lower].push_back(upper);
  };
  bendBoxes.resize(edges.size());
  for (size_t edge = 0; edge < edges.size(); ++edge) {
    size_t last = edges[edge].first;
    const size_t to = edges[edge].second;
    for (size_t row = rowOf[last] + 1; row < rowOf[to]; ++row) {
      const size_t bend = widths.size();
      widths.push_back(bendWidth);
      rowOf.push_back(row);
      above.emplace_back();
      below.emplace_back();
      join(last, bend);
      bendBoxes[edge].push_back(bend);
      last = bend;
    }
    join(last, to);
  }
}

void LayeredLayout::sortBy(std::vector<size_t>& row,
                           const std::vector<std::vector<size_t>>& neighbours) {
  std::vector<std::pair<double, size_t>> keyed;
  for (size_t box : row) {
    double sum = 0;
    for (size_t neighbour : neighbours[box])
      sum += static_cast<double>(position[neighbour]);
    // A box without neighbours keeps its place.
    keyed.emplace_back(neighbours[box].empty() ? static_cast<double>(position[box])
                                               : sum / static_cast<double>(neighbours[box].size()),
                       box);
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = keyed[i].second;
    position[row[i]] = i;
  }
}

void LayeredLayout::orderRows() {
  size_t count = 0;
  for (size_t row : rowOf)
    count = std::max(count, row + 1);
  rows.resize(count);
  position.resize(widths.size());
  for (size_t box = 0; box < widths.size(); ++box) {
    position[box] = rows[rowOf[box]].size();
    rows[rowOf[box]].push_back(box);
  }
  for (unsigned sweep = 0; sweep < sweeps; ++sweep)
    if (sweep % 2 == 0)
      for (size_t row = 1; row < rows.size(); ++row)
        sortBy(rows[row], above);
    else
      for (size_t row = rows.size(); row-- > 1;)
        sortBy(rows[row - 1], below);
}

void LayeredLayout::place(double boxHeight, double gapX, double gapY) {
  const size_t boxes = widths.size();
  findRows();
  splitEdges();
  orderRows();
  for (const std::vector<size_t>& row : rows) {
    double width = 0;
    for (size_t box : row)
      width += widths[box] + gapX;
    totalWidth = std::max(totalWidth, width - gapX);
  }
  places.resize(widths.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    double width = -gapX;
    for (size_t box : rows[row])
      width += widths[box] + gapX;
    double left = (totalWidth - width) / 2;
    for (size_t box : rows[row]) {
      places[box] = {left + widths[box] / 2, static_cast<double>(row) * (boxHeight + gapY)};
      left += widths[box] + gapX;
    }
  }
  totalHeight = rows.empty() ? 0
                             : static_cast<double>(rows.size()) * boxHeight +
                                   static_cast<double>(rows.size() - 1) * gapY;
  bendPoints.resize(edges.size());
  for (size_t edge = 0; edge < edges.size(); ++edge)
    for (size_t bend : bendBoxes[edge])
      bendPoints[edge].push_back({places[bend].x, places[bend].y + boxHeight / 2});
  places.resize(boxes);
}

} // namespace kvopt::cli
