// Simpler constants and smaller extents.
#include "driver/reduce/constant_edits.h"

#include "tests/driver/reduce/reduced_text.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

using testing::Each;
using testing::ElementsAre;

constexpr const char* projection = R"(
<ir_version: 8, opset_import: ["" : 17]>
projection (float[N, 4] x) => (float[N, 2, 2] y)
<float[4, 4] w = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, int64[3] heads = {-1, 2, 2}>
{
  p = MatMul (x, w)
  y = Reshape (p, heads)
})";

TEST(Constants, BecomeInputs) {
  TextModel text(projection);
  ASSERT_THAT(initializerNames(text.graph(), 64), ElementsAre("w"));
  ASSERT_TRUE(turnIntoInputs(text.graph(), std::string("w")));
  EXPECT_TRUE(text.isValid());
  EXPECT_EQ(text.inputs(), "x w");
  EXPECT_EQ(text.graph().findValue("w")->type().str(), "float[4, 4]");
  EXPECT_FALSE(turnIntoInputs(text.graph(), std::string("w")));
}

TEST(Constants, BecomeZeros) {
  TextModel text(projection);
  ASSERT_TRUE(simplify(text.graph(), std::string("w"), Contents::Zeros));
  EXPECT_TRUE(text.isValid());
  EXPECT_THAT(*floatValues(*text.graph().findValue("w")->constant()), Each(0.0));
  // Nothing is simpler.
  EXPECT_FALSE(simplify(text.graph(), std::string("w"), Contents::Zeros));
  ASSERT_TRUE(simplify(text.graph(), std::string("w"), Contents::Scalar));
  EXPECT_TRUE(text.graph().findValue("w")->constant()->shape().empty());
}

TEST(Extents, AreScaledEverywhere) {
  TextModel text(projection);
  EXPECT_THAT(fixedExtents(text.graph()), ElementsAre(4, 3));
  ASSERT_TRUE(scaleExtents(*text.model, 2, 1));
  EXPECT_TRUE(text.isValid());
  const TensorData& weights = *text.graph().findValue("w")->constant();
  EXPECT_EQ(weights.shape(), llvm::ArrayRef<int64_t>({2, 2}));
  EXPECT_THAT(*floatValues(weights), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(*integerValues(*text.graph().findValue("heads")->constant()), ElementsAre(-1, 1, 1));
  EXPECT_EQ(text.graph().findValue("x")->type().str(), "float[N, 2]");
}

TEST(Extents, ThatContradictEachOtherAreRefused) {
  TextModel text(R"(
<ir_version: 8, opset_import: ["" : 17]>
sum (float[N, 4] x, float[N, 8] y) => (float[N, 12] z, float[N, 12] s)
<float[12] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
{
  z = Concat <axis = 1> (x, y)
  s = Add (z, w)
})");
  // 8 becomes 1 while 12 and 4 stay.
  EXPECT_FALSE(scaleExtents(*text.model, 8, 1));
}

} // namespace
} // namespace kvopt
