// Boxes do not overlap, every edge leads downward, and the same graph has the same layout.
#include "cli/report/graph_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvopt {
using namespace cli;

namespace {

using Edges = std::vector<std::pair<size_t, size_t>>;

constexpr GraphSpacing spacing{/*boxHeight=*/20, /*gapX=*/10, /*gapY=*/30};

GraphLayout laidOut(const std::vector<double>& widths, const Edges& edges) {
  return llvm::cantFail(layOutGraph(widths, edges, spacing));
}

/// Whether a point is on the border of a box.
bool isAt(const GraphLayout::Point& point, const GraphLayout::Point& box, double width) {
  const double x = std::abs(point.x - box.x) - width / 2;
  const double y = std::abs(point.y - box.y) - spacing.boxHeight / 2;
  return std::abs(std::max(x, y)) <= 1;
}

TEST(GraphLayout, AChainAndAShortCut) {
  const GraphLayout layout = laidOut({40, 40, 40, 40}, {{0, 1}, {1, 2}, {2, 3}, {0, 3}});
  ASSERT_EQ(layout.boxes.size(), 4u);
  ASSERT_EQ(layout.edges.size(), 4u);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(layout.boxes[i].y, 10 + static_cast<double>(i) * 50, 1);
  EXPECT_NEAR(layout.height, 3 * 50 + 20, 1);
  // Past the boxes between its ends, not through them.
  for (const GraphLayout::Point& point : layout.edges[3])
    for (size_t between : {1u, 2u})
      EXPECT_TRUE(std::abs(point.y - layout.boxes[between].y) > 10 ||
                  std::abs(point.x - layout.boxes[between].x) > 20);
}

TEST(GraphLayout, SourcesAreRightAboveTheirReaders) {
  const GraphLayout layout = laidOut({40, 40, 40, 40}, {{0, 1}, {1, 2}, {3, 2}});
  EXPECT_EQ(layout.boxes[3].y, layout.boxes[1].y);
}

TEST(GraphLayout, NothingHasNoSize) {
  const GraphLayout layout = laidOut({}, {});
  EXPECT_EQ(layout.width, 0);
  EXPECT_EQ(layout.height, 0);
}

TEST(GraphLayout, RandomGraphs) {
  std::mt19937 random(7);
  auto below = [&](size_t limit) { return random() % limit; };
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    const size_t boxes = 1 + below(40);
    std::vector<double> widths;
    for (size_t i = 0; i < boxes; ++i)
      widths.push_back(20 + static_cast<double>(below(100)));
    Edges edges;
    for (size_t i = 1; i < boxes; ++i)
      for (size_t n = below(3); n-- > 0;)
        edges.emplace_back(below(i), i);
    const GraphLayout layout = laidOut(widths, edges);
    ASSERT_EQ(layout.boxes.size(), boxes);
    for (size_t i = 0; i < boxes; ++i) {
      EXPECT_GE(layout.boxes[i].x - widths[i] / 2, -1);
      EXPECT_LE(layout.boxes[i].x + widths[i] / 2, layout.width + 1);
      EXPECT_GE(layout.boxes[i].y, 10 - 1);
      EXPECT_LE(layout.boxes[i].y + 10, layout.height + 1);
      for (size_t j = 0; j < i; ++j)
        EXPECT_TRUE(std::abs(layout.boxes[i].y - layout.boxes[j].y) >= 20 + 29 ||
                    std::abs(layout.boxes[i].x - layout.boxes[j].x) >=
                        (widths[i] + widths[j]) / 2 + 9);
    }
    ASSERT_EQ(layout.edges.size(), edges.size());
    for (size_t edge = 0; edge < edges.size(); ++edge) {
      const auto [from, to] = edges[edge];
      const std::vector<GraphLayout::Point>& points = layout.edges[edge];
      ASSERT_EQ(points.size() % 3, 1u);
      EXPECT_LT(layout.boxes[from].y, layout.boxes[to].y);
      EXPECT_TRUE(isAt(points.front(), layout.boxes[from], widths[from]));
      EXPECT_TRUE(isAt(points.back(), layout.boxes[to], widths[to]));
    }
  }
}

TEST(GraphLayout, TheSameGraphHasTheSameLayout) {
  Edges edges;
  for (size_t i = 1; i < 60; ++i)
    for (size_t from : {i / 2, i * 7 % i, i - 1})
      edges.emplace_back(from, i);
  const std::vector<double> widths(60, 50);
  const GraphLayout first = laidOut(widths, edges);
  const GraphLayout second = laidOut(widths, edges);
  for (size_t i = 0; i < widths.size(); ++i) {
    EXPECT_EQ(first.boxes[i].x, second.boxes[i].x);
    EXPECT_EQ(first.boxes[i].y, second.boxes[i].y);
  }
  for (size_t edge = 0; edge < edges.size(); ++edge) {
    ASSERT_EQ(first.edges[edge].size(), second.edges[edge].size());
    for (size_t i = 0; i < first.edges[edge].size(); ++i) {
      EXPECT_EQ(first.edges[edge][i].x, second.edges[edge][i].x);
      EXPECT_EQ(first.edges[edge][i].y, second.edges[edge][i].y);
    }
  }
}

} // namespace
} // namespace kvopt
