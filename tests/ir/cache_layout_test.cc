// What lies along each axis, and the orders of axes that follow from it.
#include "ir/cache_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

namespace kvopt {
using namespace ir;
using testing::ElementsAre;

namespace {

using Order = llvm::SmallVector<int64_t, 4>;

/// Extents of each letter, all different.
const std::map<char, int64_t> extents = {{'*', 2}, {'B', 3}, {'H', 5}, {'S', 7}, {'D', 11}};

/// A tensor of which each element says the place that it has along every letter.
struct Named {
  std::vector<int64_t> shape;
  std::vector<int64_t> elements;
};

/// What `place` is along each letter, as one number.
int64_t nameOf(const std::map<char, int64_t>& place) {
  int64_t name = 0;
  for (const auto& [letter, at] : place)
    name = name * 16 + at;
  return name;
}

Named laidOut(const CacheLayout& layout) {
  Named tensor;
  std::string letters;
  for (llvm::StringRef axis : layout.axes()) {
    int64_t extent = 1;
    for (char letter : axis)
      if (extents.count(letter)) {
        extent *= extents.at(letter);
        letters += letter;
      }
    tensor.shape.push_back(extent);
  }
  const int64_t count = std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1},
                                        std::multiplies<int64_t>());
  for (int64_t i = 0; i < count; ++i) {
    std::map<char, int64_t> place = {{'*', 0}, {'B', 0}, {'H', 0}, {'S', 0}, {'D', 0}};
    int64_t rest = i;
    for (size_t at = letters.size(); at-- > 0;) {
      place[letters[at]] = rest % extents.at(letters[at]);
      rest /= extents.at(letters[at]);
    }
    tensor.elements.push_back(nameOf(place));
  }
  return tensor;
}

Named transposed(const Named& x, llvm::ArrayRef<int64_t> order) {
  const size_t rank = x.shape.size();
  std::vector<int64_t> strides(rank, 1);
  for (size_t i = rank; i-- > 1;)
    strides[i - 1] = strides[i] * x.shape[i];
  Named result;
  for (int64_t axis : order)
    result.shape.push_back(x.shape[static_cast<size_t>(axis)]);
  for (size_t i = 0; i < x.elements.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), from = 0;
    for (size_t axis = rank; axis-- > 0;) {
      from += rest % result.shape[axis] * strides[static_cast<size_t>(order[axis])];
      rest /= result.shape[axis];
    }
    result.elements.push_back(x.elements[static_cast<size_t>(from)]);
  }
  return result;
}

CacheLayout layoutOf(llvm::StringRef text) {
  std::optional<CacheLayout> layout = CacheLayout::parse(text);
  EXPECT_TRUE(layout) << text.str();
  return layout.value_or(CacheLayout());
}

TEST(CacheLayout, IsReadAndWrittenAsText) {
  for (const char* text : {"", "BHSD", "SBHD", "BSHD", "BHDS", "(BH)SD", "(BH)DS", "BS(HD)", "BSD",
                           "HSD", "*BHSD", "**BHSD", "B1S1D", "(B?)S??", "??S?", "(*B)HSD"}) {
    const CacheLayout layout = layoutOf(text);
    EXPECT_EQ(layout.text(), text);
    std::vector<std::string> axes;
    for (llvm::StringRef axis : layout.axes())
      axes.push_back(axis.str());
    EXPECT_EQ(CacheLayout(axes), layout);
    EXPECT_EQ(layout.rank(), axes.size());
    EXPECT_EQ(layout.isKnown(), *text != '\0');
  }
  for (const char* text :
       {"BHSB", "(BH", "BH)", "(B)HSD", "()HSD", "((BH))", "BHSX", "(1B)", "bhsd"})
    EXPECT_FALSE(CacheLayout::parse(text)) << text;
}

TEST(CacheLayout, AxesWithoutLettersHaveExtentOne) {
  const std::vector<std::string> axes = {"B", "", "S", "D"};
  EXPECT_EQ(CacheLayout(axes).text(), "B1SD");
}

TEST(CacheLayout, FollowsFromRankAndSequenceAxis) {
  const char* ofFour[] = {"SBHD", "BSHD", "BHSD", "BHDS"};
  for (int64_t axis = 0; axis < 4; ++axis)
    EXPECT_EQ(CacheLayout::bySequenceAxis(4, axis), layoutOf(ofFour[axis]));
  EXPECT_EQ(CacheLayout::bySequenceAxis(3, 1), layoutOf("(BH)SD"));
  EXPECT_EQ(CacheLayout::bySequenceAxis(3, 2), layoutOf("(BH)DS"));
  for (const auto& [rank, axis] :
       {std::pair<size_t, int64_t>{4, 4}, {4, -1}, {3, 0}, {3, 3}, {2, 1}, {5, 3}, {0, 0}})
    EXPECT_FALSE(CacheLayout::bySequenceAxis(rank, axis)) << rank << " " << axis;
  EXPECT_EQ(CacheLayout::ofAttention(), layoutOf("BHSD"));
}

TEST(CacheLayout, KnowsItsAxes) {
  const CacheLayout transposed = layoutOf("BHDS");
  EXPECT_EQ(transposed.batchAxis(), 0u);
  EXPECT_EQ(transposed.headAxis(), 1u);
  EXPECT_EQ(transposed.sequenceAxis(), 3u);
  EXPECT_EQ(transposed.columnAxis(), 2u);
  EXPECT_TRUE(transposed.isTransposed());
  EXPECT_FALSE(transposed.hasFoldedHeads());
  EXPECT_FALSE(transposed.isStacked());
  const CacheLayout folded = layoutOf("(BH)SD");
  EXPECT_EQ(folded.batchAxis(), 0u);
  EXPECT_EQ(folded.headAxis(), 0u);
  EXPECT_EQ(folded.sequenceAxis(), 1u);
  EXPECT_EQ(folded.columnAxis(), 2u);
  EXPECT_FALSE(folded.isTransposed());
  EXPECT_TRUE(folded.hasFoldedHeads());
  const CacheLayout flat = layoutOf("BS(HD)");
  EXPECT_EQ(flat.sequenceAxis(), 1u);
  EXPECT_EQ(flat.headAxis(), 2u);
  EXPECT_EQ(flat.columnAxis(), 2u);
  EXPECT_FALSE(flat.isTransposed());
  EXPECT_FALSE(flat.hasFoldedHeads());
  const CacheLayout stacked = layoutOf("**B1SD");
  EXPECT_TRUE(stacked.isStacked());
  EXPECT_EQ(stacked.axisOf('*'), 0u);
  EXPECT_EQ(stacked.batchAxis(), 2u);
  EXPECT_EQ(stacked.sequenceAxis(), 4u);
  EXPECT_EQ(stacked.axisOf('H'), std::nullopt);
  EXPECT_EQ(layoutOf("S(B?)?").axisOf('B'), 1u);
  EXPECT_EQ(CacheLayout().axisOf('S'), std::nullopt);
}

TEST(CacheLayout, RowOrderMakesRowsInHeads) {
  const Named rows = laidOut(layoutOf("BHSD"));
  const Named folded = laidOut(layoutOf("(BH)SD"));
  ASSERT_EQ(rows.elements, folded.elements);
  for (const char* text :
       {"SBHD", "BSHD", "BHSD", "BHDS", "HBDS", "DSHB", "(BH)SD", "(BH)DS", "D(BH)S"}) {
    const CacheLayout layout = layoutOf(text);
    const Named cache = laidOut(layout);
    const Named moved = transposed(cache, layout.rowOrder());
    EXPECT_EQ(moved.elements, rows.elements) << text;
    EXPECT_EQ(moved.shape, layout.hasFoldedHeads() ? folded.shape : rows.shape) << text;
    const Named back = transposed(moved, layout.cacheOrder());
    EXPECT_EQ(back.elements, cache.elements) << text;
    EXPECT_EQ(back.shape, cache.shape) << text;
  }
  EXPECT_THAT(layoutOf("BS(HD)").rowOrder(), ElementsAre(0, 2, 1));
  const CacheLayout stack = layoutOf("BS*HD");
  EXPECT_EQ(transposed(laidOut(stack), stack.rowOrder()).elements,
            laidOut(layoutOf("*BHSD")).elements);
}

TEST(CacheLayout, OneLayoutIsMadeOfAnother) {
  const char* ofFour[] = {"SBHD", "BSHD", "BHSD", "BHDS", "DSHB"};
  for (const char* from : ofFour)
    for (const char* to : ofFour) {
      const std::optional<Order> order = layoutOf(to).orderFrom(layoutOf(from));
      ASSERT_TRUE(order) << from << " " << to;
      EXPECT_EQ(transposed(laidOut(layoutOf(from)), *order).elements,
                laidOut(layoutOf(to)).elements)
          << from << " " << to;
    }
  EXPECT_THAT(*layoutOf("(BH)DS").orderFrom(layoutOf("(BH)SD")), ElementsAre(0, 2, 1));
  EXPECT_FALSE(layoutOf("BHSD").orderFrom(layoutOf("(BH)SD")));
  EXPECT_FALSE(layoutOf("(BH)SD").orderFrom(layoutOf("BHSD")));
  EXPECT_FALSE(layoutOf("BHSD").orderFrom(layoutOf("*BHSD")));
  EXPECT_FALSE(layoutOf("BHSD").orderFrom(layoutOf("B1SD")));
}

} // namespace
} // namespace kvopt
