// Boxes do not overlap, and every edge leads downwards.
#include "cli/report/layered_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvopt {
using namespace cli;

namespace {

TEST(LayeredLayout, AChainAndAShortCut) {
  LayeredLayout layout;
  for (int i = 0; i < 4; ++i)
    layout.addBox(40);
  layout.addEdge(0, 1);
  layout.addEdge(1, 2);
  layout.addEdge(2, 3);
  layout.addEdge(0, 3);
  layout.place(20, 10, 30);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(layout.box(i).y, static_cast<double>(i) * 50);
  EXPECT_TRUE(layout.bends(0).empty());
  ASSERT_EQ(layout.bends(3).size(), 2u);
  for (size_t row : {0u, 1u}) {
    // Past the box of that row, not through it.
    EXPECT_GT(std::abs(layout.bends(3)[row].x - layout.box(row + 1).x), 20);
    EXPECT_EQ(layout.bends(3)[row].y, static_cast<double>(row + 1) * 50 + 10);
  }
  EXPECT_EQ(layout.height(), 3 * 50 + 20);
}

TEST(LayeredLayout, HangingBoxesStandAboveTheirReaders) {
  LayeredLayout layout;
  layout.addBox(40);
  layout.addBox(40);
  layout.addBox(40);
  const size_t input = layout.addBox(40, /*isHanging=*/true);
  layout.addEdge(0, 1);
  layout.addEdge(1, 2);
  layout.addEdge(input, 2);
  layout.place(20, 10, 30);
  EXPECT_EQ(layout.box(input).y, layout.box(1).y);
  EXPECT_TRUE(layout.bends(2).empty());
}

TEST(LayeredLayout, NothingHasNoSize) {
  LayeredLayout layout;
  layout.place(20, 10, 30);
  EXPECT_EQ(layout.width(), 0);
  EXPECT_EQ(layout.height(), 0);
}

TEST(LayeredLayout, RandomGraphs) {
  std::mt19937 random(7);
  auto below = [&](size_t limit) { return random() % limit; };
  for (int round = 0; round < 200; ++round) {
    LayeredLayout layout;
    const size_t boxes = 1 + below(40);
    std::vector<double> widths;
    for (size_t i = 0; i < boxes; ++i) {
      widths.push_back(20 + static_cast<double>(below(100)));
      layout.addBox(widths.back(), below(4) == 0);
    }
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t i = 1; i < boxes; ++i)
      for (size_t n = below(3); n-- > 0;)
        layout.addEdge(edges.emplace_back(below(i), i).first, i);
    layout.place(20, 10, 30);
    for (size_t i = 0; i < boxes; ++i) {
      EXPECT_GE(layout.box(i).x - widths[i] / 2, -1e-9);
      EXPECT_LE(layout.box(i).x + widths[i] / 2, layout.width() + 1e-9);
      EXPECT_LE(layout.box(i).y + 20, layout.height());
      for (size_t j = 0; j < i; ++j)
        EXPECT_TRUE(layout.box(i).y != layout.box(j).y ||
                    std::abs(layout.box(i).x - layout.box(j).x) >=
                        (widths[i] + widths[j]) / 2 + 10 - 1e-9);
    }
    for (size_t edge = 0; edge < edges.size(); ++edge) {
      double y = layout.box(edges[edge].first).y;
      for (const LayeredLayout::Point& bend : layout.bends(edge)) {
        EXPECT_GT(bend.y, y);
        y = bend.y;
      }
      EXPECT_GT(layout.box(edges[edge].second).y, y - 10);
    }
  }
}

} // namespace
} // namespace kvopt
