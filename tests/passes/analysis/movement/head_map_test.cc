// Tables from heads to the heads they are taken from.
#include "passes/analysis/movement/head_map.h"

#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "support/diagnostic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

using testing::ElementsAre;

class HeadMaps : public testing::Test {
protected:
  HeadMaps() { registerAll(ops); }

  /// The maps of `r`, which the nodes make of k[B,2,T,16], ks[B,T,2,16] and other[B,2,T,16].
  std::vector<HeadMap> mapsOf(const std::string& nodes) {
    auto read = readText(R"(
<ir_version: 8, opset_import: ["" : 17]>
g (float[B, 2, T, 16] k, float[B, T, 2, 16] ks, float[B, 2, T, 16] other, int64[4] open)
  => (float[?, ?, ?, ?] r)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] last = {-1},
 int64[1] lowest = {-9223372036854775808}, int64[4] times = {1, 2, 1, 1}, float half = {0.5}>
{)" + nodes + "}\n",
                         ops);
    if (!read)
      throw std::runtime_error(takeDiagnostic(read.takeError()).str());
    model = std::move(*read);
    if (llvm::Error error = inferShapes(model->graph()))
      throw std::runtime_error(takeDiagnostic(std::move(error)).str());
    return headMaps(*model->graph().outputs().front());
  }

  OpRegistry ops;
  std::unique_ptr<Model> model;
};

TEST_F(HeadMaps, FollowRepetitionsInEveryOrder) {
  std::vector<HeadMap> tiled = mapsOf("r = Tile (k, times)");
  ASSERT_EQ(tiled.size(), 2u);
  EXPECT_TRUE(tiled[0].isIdentity());
  EXPECT_EQ(tiled[1].source.value->name(), "k");
  EXPECT_EQ(tiled[1].source.groups.value(), 2);
  EXPECT_THAT(tiled[1].groupOf, ElementsAre(0, 1, 0, 1));

  std::vector<HeadMap> reversed = mapsOf("r = Slice (k, last, lowest, one, last)");
  ASSERT_EQ(reversed.size(), 2u);
  EXPECT_FALSE(reversed[1].isIdentity());
  EXPECT_THAT(reversed[1].groupOf, ElementsAre(1, 0));

  std::vector<HeadMap> both = mapsOf(R"(
  a = Slice (k, last, lowest, one, last)
  b = Unsqueeze (a, one)
  c = Concat <axis = 1> (b, b, b)
  shape = Constant <value = int64[4] {0, 6, -1, 16}> ()
  r = Reshape (c, shape)
)");
  EXPECT_THAT(both.back().groupOf, ElementsAre(1, 0, 1, 0, 1, 0));
  EXPECT_EQ(both.back().source.value->name(), "k");
}

TEST_F(HeadMaps, FollowConstantIndices) {
  EXPECT_THAT(mapsOf(R"(
  table = Constant <value = int64[5] {1, 0, 0, -1, 1}> ()
  r = Gather <axis = 1> (k, table)
)")
                  .back()
                  .groupOf,
              ElementsAre(1, 0, 0, 1, 1));
  std::vector<HeadMap> maps = mapsOf(R"(
  list = Constant <value = int64[3] {1, 0, 1}> ()
  column = Unsqueeze (list, one)
  a = Transpose <perm = [2, 0, 1, 3]> (ks)
  b = GatherND (a, column)
  r = Transpose <perm = [1, 0, 2, 3]> (b)
)");
  EXPECT_EQ(maps.back().source.value->name(), "ks");
  EXPECT_THAT(maps.back().groupOf, ElementsAre(1, 0, 1));
  EXPECT_THAT(*maps.back().source.shape.perm, ElementsAre(0, 2, 1, 3));
}

TEST_F(HeadMaps, FollowHeadsThatAreJoinedOneByOne) {
  std::vector<HeadMap> maps = mapsOf(R"(
  a = Slice (k, zero, one, one)
  b = Slice (k, one, two, one)
  r = Concat <axis = 1> (b, a, b)
)");
  EXPECT_EQ(maps.back().source.value->name(), "k");
  EXPECT_THAT(maps.back().groupOf, ElementsAre(1, 0, 1));
}

TEST_F(HeadMaps, KeepElementwiseChanges) {
  std::vector<HeadMap> maps = mapsOf(R"(
  a = Tile (k, times)
  r = Mul (a, half)
)");
  EXPECT_EQ(maps.back().source.value->name(), "k");
  ASSERT_EQ(maps.back().source.pointwise.size(), 1u);
  EXPECT_TRUE(maps.back().source.pointwise[0]->is("Mul"));
}

TEST_F(HeadMaps, EndWhereHeadsComeFromSeveralPlaces) {
  // Two tensors; rows in another order; indices that are not known; a head that is scaled alone.
  EXPECT_EQ(mapsOf("r = Concat <axis = 1> (k, other)").size(), 1u);
  EXPECT_EQ(mapsOf("r = Slice (k, last, lowest, two, last)").size(), 1u);
  EXPECT_EQ(mapsOf("r = Gather <axis = 1> (k, open)").size(), 1u);
  EXPECT_EQ(mapsOf(R"(
  a = Slice (k, zero, one, one)
  b = Slice (k, one, two, one)
  c = Mul (b, half)
  r = Concat <axis = 1> (a, c)
)")
                .size(),
            1u);
}

} // namespace
} // namespace kvopt
