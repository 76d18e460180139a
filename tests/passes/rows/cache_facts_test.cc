// What evaluation finds values to be: rows of a cache and new ones.
#include "passes/rows/cache_facts.h"

#include "ir/model.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/analysis/interface/interface_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;
using namespace rows;

namespace {

using testing::HasSubstr;

class CacheFactsTest : public testing::Test {
protected:
  CacheFactsTest() { registerAll(ops); }

  void read(const std::string& text) {
    model = llvm::cantFail(
        readText("<ir_version: 8, opset_import: [\"\" : 18]>\n" + text, ops, "test"));
    llvm::cantFail(inferShapes(model->graph()));
    interface = readInterface(model->graph());
    facts = std::make_unique<CacheFacts>(model->graph(), interface);
  }
  const Value& value(const char* name) const { return *model->graph().findValue(name); }
  const RowFact& factOf(const char* name) { return facts->of(value(name)); }

  OpRegistry ops;
  std::unique_ptr<Model> model;
  InterfaceFacts interface;
  std::unique_ptr<CacheFacts> facts;
};

TEST_F(CacheFactsTest, RowsOfACacheThatGrows) {
  read(R"(
g (float[B, S, 8] x, float[B, 2, P, 4] past) => (float[B, 2, "P + S", 4] all)
<int64[4] cut = {0, 0, 2, 4}, int64[5] wide = {1, 1, 3, 1, 1}, int64[1] two = {2},
 int64[4] six = {0, 6, -1, 4}, int64[1] from = {-5}, int64[1] end = {1000000000000}, float half = {0.5}>
{
  given = Tanh (x)
  parted = Reshape (given, cut)
  new = Transpose <perm = [0, 2, 1, 3]> (parted)
  all = Concat <axis = 2> (past, new)
  five = Unsqueeze (all, two)
  tiled = Expand (five, wide)
  heads = Reshape (tiled, six)
  window = Slice (all, from, end, two)
  scaled = Mul (all, half)
  summed = Add (all, scaled)
  only = Neg (new)
  both = Concat <axis = 2> (new, past)
})");
  const RowFact& all = factOf("all");
  EXPECT_EQ(all.origin, RowOrigin::Appended);
  EXPECT_EQ(all.past, &value("past"));
  EXPECT_TRUE(all.argument.holds());
  EXPECT_TRUE(all.hasHeads);
  EXPECT_EQ(all.headRepeats.value(), 1);
  EXPECT_GE(all.points, 9U);
  EXPECT_GE(all.sizes.size(), 4U);

  const RowFact& heads = factOf("heads");
  EXPECT_EQ(heads.origin, RowOrigin::Appended);
  EXPECT_EQ(heads.headRepeats.value(), 3) << "each head is read by three";

  const RowFact& window = factOf("window");
  EXPECT_EQ(window.origin, RowOrigin::LastRows);
  EXPECT_EQ(window.lastRows, 5);
  EXPECT_TRUE(window.argument.holds());

  EXPECT_EQ(factOf("new").origin, RowOrigin::New);
  EXPECT_EQ(factOf("past").origin, RowOrigin::Cached);
  EXPECT_EQ(factOf("scaled").origin, RowOrigin::Computed);
  EXPECT_THAT(factOf("scaled").detail, HasSubstr("scaled"));
  EXPECT_EQ(factOf("both").origin, RowOrigin::Computed) << "new rows come first";
}

TEST_F(CacheFactsTest, NewRowsThatRepeatElementsAreRows) {
  read(R"(
g (float[B, S, 4] x, float[B, 2, P, 4] past) => (float[B, 2, "P + S", 4] all)
<int64[1] one = {1}, int64[4] twice = {1, 2, 1, 1}>
{
  given = Tanh (x)
  head = Unsqueeze (given, one)
  new = Expand (head, twice)
  all = Concat <axis = 2> (past, new)
})");
  const RowFact& all = factOf("all");
  EXPECT_EQ(all.origin, RowOrigin::Appended);
  EXPECT_EQ(all.fresh, &value("new"));
  EXPECT_TRUE(all.argument.holds());
}

TEST_F(CacheFactsTest, RowsThatAreWrittenAtPlaces) {
  read(R"(
g (float[1, S, 8] x, float[1, 2, 16, 4] past, int64[S] cache_position)
  => (float[1, 2, 16, 4] all)
<int64[4] cut = {0, 0, 2, 4}, int64[3] axes = {0, 1, 3}>
{
  given = Tanh (x)
  parted = Reshape (given, cut)
  new = Transpose <perm = [0, 2, 1, 3]> (parted)
  places = Unsqueeze (cache_position, axes)
  extents = Shape (new)
  index = Expand (places, extents)
  all = ScatterElements <axis = 2> (past, index, new)
})");
  const RowFact& all = factOf("all");
  ASSERT_EQ(all.origin, RowOrigin::Written);
  ASSERT_TRUE(all.place);
  EXPECT_EQ(all.place->input, &value("cache_position"));
  EXPECT_TRUE(all.argument.holds());
}

TEST_F(CacheFactsTest, OtherRowsAtAConstantAreFound) {
  read(R"(
g (float[B, S, 8] x, float[B, 2, P, 4] past) => (float[B, 2, "P + S", 4] all)
<int64[4] cut = {0, 0, 2, 4}, int64 two = {2}, int64 length = {123}>
{
  given = Tanh (x)
  parted = Reshape (given, cut)
  new = Transpose <perm = [0, 2, 1, 3]> (parted)
  joined = Concat <axis = 2> (past, new)
  shape = Shape (past)
  count = Gather (shape, two)
  is = Equal (count, length)
  other = Neg (joined)
  all = Where (is, other, joined)
})");
  const RowFact& all = factOf("all");
  EXPECT_EQ(all.origin, RowOrigin::Computed);
  EXPECT_THAT(all.detail, HasSubstr("P=123"));
}

} // namespace
} // namespace kvopt
