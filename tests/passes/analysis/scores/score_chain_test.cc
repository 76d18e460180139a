// Chains of scores: what is read from them, and why some are not.
#include "passes/analysis/scores/score_chain.h"

#include "ir/shapes/shape_inference.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/builders/score_mask.h"
#include "tests/ir/text/text_fixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvopt {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

class ScoreChainTest : public testing::Test {
protected:
  /// Reads the chain that ends in `scores`.
  std::optional<ScoreChain> read(const std::string& body) {
    model = readOrFail(R"(<ir_version: 8, opset_import: ["" : 17]>
      chain (float[B, 4, S, 16] q, float[B, 4, 16, T] kt, float[B, 1, S, T] mask,
             float[2, B, 4, S, T] wide, bool[S, T] allowed, float factor, float[B, 4, S, 16] rows, float[B, 4, 16, S] columns,
             int64[B, 1, S, 1] limit, float[S, T] table)
        => (float[B, 4, S, T] scores)
        <float two = {2.0}, float[1, 1, 1, 1] four = {4.0}, float minus = {-0.5}, float micro = {1e-6},
         float lowest = {-3.4028234663852886e38}, float hundred = {-100.0},
         float billion = {-1e9}, float nothing = {0.0}, float infinite = {-inf}, int64 start = {0}, int64 step = {1}, int64[1] last = {-1},
         int64 window = {4}>
      { product = MatMul (q, kt)
)" + body + "\n}");
    if (!model)
      return std::nullopt;
    // The result of a mask of rank 5 is not what the graph declares.
    llvm::consumeError(inferShapes(model->graph()));
    failure = MatchFailure();
    return readScoreChain(*model->graph().outputs().front(), failure);
  }

  std::unique_ptr<Model> model;
  MatchFailure failure;
};

TEST_F(ScoreChainTest, FactorsMultiplyAndCapsTakeWhatIsOutside) {
  auto chain = read(R"(a = Mul (two, product)
      b = Div (a, four)
      c = Tanh (b)
      scores = Mul (c, minus))");
  ASSERT_TRUE(chain) << failure.str();
  // -0.5 tanh(0.5 x) = 0.5 tanh(-0.25 x / 0.5)
  EXPECT_DOUBLE_EQ(chain->scale, -0.25);
  EXPECT_DOUBLE_EQ(chain->softcap, 0.5);
  EXPECT_TRUE(chain->mask.empty());
  EXPECT_EQ(chain->nodes.size(), 5u);
  EXPECT_EQ(chain->query->name(), "q");
  EXPECT_EQ(chain->keysTransposed->name(), "kt");
}

TEST_F(ScoreChainTest, MaskStepsKeepTheirOrder) {
  auto chain = read(R"(a = Where (allowed, product, lowest)
      b = Add (mask, a)
      c = Div (b, two)
      scores = Max (c, lowest))");
  ASSERT_TRUE(chain) << failure.str();
  EXPECT_DOUBLE_EQ(chain->scale, 0.5);
  ASSERT_EQ(chain->mask.size(), 4u);
  EXPECT_EQ(chain->mask[0].kind, MaskStep::Kind::Fill);
  EXPECT_TRUE(chain->mask[0].keepsTrue);
  EXPECT_EQ(chain->mask[1].kind, MaskStep::Kind::Add);
  EXPECT_EQ(chain->mask[1].operand->name(), "mask");
  EXPECT_EQ(chain->mask[2].kind, MaskStep::Kind::Divide);
  EXPECT_EQ(chain->mask[3].kind, MaskStep::Kind::Clamp);
}

TEST_F(ScoreChainTest, RefusalsSayWhatIsWrong) {
  EXPECT_FALSE(read("scores = Mul (product, factor)"));
  EXPECT_EQ(failure.code, ReasonCode::ScaleNotConstant);
  EXPECT_FALSE(read("scores = Div (two, product)"));
  EXPECT_EQ(failure.code, ReasonCode::ScaleNotConstant);
  EXPECT_FALSE(read("scores = Div (product, nothing)"));
  EXPECT_EQ(failure.code, ReasonCode::ScaleNotConstant);
  EXPECT_FALSE(read("a = Add (product, mask)\n scores = Mul (a, minus)"));
  EXPECT_EQ(failure.code, ReasonCode::ScaleNotConstant);
  EXPECT_EQ(failure.expected, "a positive factor after the mask");
  EXPECT_FALSE(read("a = Tanh (product)\n scores = Tanh (a)"));
  EXPECT_EQ(failure.expected, "one soft cap");
  EXPECT_FALSE(read("a = Tanh (product)\n scores = Mul (a, nothing)"));
  EXPECT_EQ(failure.code, ReasonCode::ScaleNotConstant);
  EXPECT_FALSE(read("scores = Relu (product)"));
  EXPECT_EQ(failure.found, "Relu");
  EXPECT_FALSE(read("scores = Max (product, hundred)"));
  EXPECT_EQ(failure.found, "-100");
  EXPECT_FALSE(read("scores = Add (product, wide)"));
  EXPECT_EQ(failure.code, ReasonCode::ShapeMismatch);
  EXPECT_FALSE(read("scores = Where (allowed, product, table)"));
  EXPECT_EQ(failure.expected, "one constant in place of masked scores");
  EXPECT_FALSE(read("a = Cast <to = 7> (product)\n scores = Cast <to = 1> (a)"));
  EXPECT_EQ(failure.code, ReasonCode::DtypeMix);
}

TEST_F(ScoreChainTest, AProductOfTwoChainsEndsWithinItsBudget) {
  // Every sum could be entered by either operand.
  std::string body = "      a0 = Add (mask, mask)\n";
  for (int i = 1; i < 100; ++i)
    body += "      a" + std::to_string(i) + " = Add (a" + std::to_string(i - 1) + ", a" +
            std::to_string(i - 1) + ")\n";
  EXPECT_FALSE(read(body + "scores = Add (a99, a99)"));
  body = "      a0 = Neg (product)\n";
  for (int i = 1; i < 2000; ++i)
    body += "      a" + std::to_string(i) + " = Identity (a" + std::to_string(i - 1) + ")\n";
  EXPECT_FALSE(read(body + "scores = Identity (a1999)"));
  EXPECT_EQ(failure.code, ReasonCode::StepBudget);
}

TEST_F(ScoreChainTest, PlansOfMasks) {
  auto plan = [&](const std::string& body) -> std::optional<ScoreMask> {
    auto chain = read(body);
    EXPECT_TRUE(chain) << failure.str();
    return chain ? planScoreMask(*chain, failure) : std::nullopt;
  };
  EXPECT_EQ(plan("scores = Mul (product, two)")->element, ElementType::Undefined);
  EXPECT_EQ(plan("scores = Add (product, mask)")->element, ElementType::Float);
  auto boolean = plan(R"(a = Where (allowed, product, infinite)
      scores = Where (allowed, infinite, a))");
  ASSERT_TRUE(boolean);
  EXPECT_EQ(boolean->element, ElementType::Bool);
  EXPECT_FALSE(boolean->pieces[1].step.keepsTrue);
  auto replaced = plan("scores = Where (allowed, product, billion)");
  ASSERT_TRUE(replaced);
  EXPECT_EQ(replaced->pieces[0].number, -1e30);
  auto kept = plan("scores = Where (allowed, product, lowest)");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->pieces[0].number, -static_cast<double>(std::numeric_limits<float>::max()));

  EXPECT_FALSE(plan("scores = Where (allowed, product, hundred)"));
  EXPECT_EQ(failure.code, ReasonCode::MaskFillInexact);
  // -1e9 and an unknown mask, or two fills of which neither absorbs the other.
  EXPECT_FALSE(plan("a = Where (allowed, product, billion)\n scores = Add (a, mask)"));
  EXPECT_EQ(failure.code, ReasonCode::MaskFillInexact);
  EXPECT_FALSE(plan(R"(low = Where (allowed, nothing, billion)
      a = Where (allowed, product, billion)
      scores = Add (a, low))"));
  EXPECT_EQ(failure.code, ReasonCode::MaskFillInexact);
  EXPECT_TRUE(plan(R"(low = Where (allowed, nothing, lowest)
      a = Where (allowed, product, billion)
      scores = Add (a, low))"));
  // A factor can lift a fill above the threshold.
  EXPECT_FALSE(plan(R"(a = Where (allowed, product, billion)
      scores = Mul (a, micro))"));
  EXPECT_EQ(failure.code, ReasonCode::MaskFillInexact);
}

TEST_F(ScoreChainTest, ARowMayKeepItsFirstOrItsOwnKey) {
  const char* indices = R"(k_shape = Shape <start = 2, end = 3> (rows)
      count = Squeeze (k_shape)
      keys = Range (start, count, step)
      here = Range (start, count, step)
      own = Unsqueeze (here, last)
      own_product = MatMul (rows, columns)
  )";
  auto plan = [&](const std::string& body) {
    auto chain = read(indices + body);
    EXPECT_TRUE(chain) << failure.str();
    return chain && planScoreMask(*chain, failure);
  };
  // Causal, then a limit by row: whoever sees a key sees the first.
  EXPECT_TRUE(plan(R"(seen = LessOrEqual (keys, own)
      within = Less (keys, limit)
      low = Where (within, nothing, billion)
      a = Where (seen, own_product, billion)
      scores = Add (a, low))"))
      << failure.str();
  // A window, whose rows see their own key, and a limit that may hide just that.
  EXPECT_FALSE(plan(R"(distance = Sub (own, keys)
      near = Less (distance, window)
      low_end = LessOrEqual (keys, own)
      seen = And (near, low_end)
      within = Less (keys, limit)
      low = Where (within, nothing, billion)
      a = Where (seen, own_product, billion)
      scores = Add (a, low))"));
  // The same mask twice.
  EXPECT_TRUE(plan(R"(distance = Sub (own, keys)
      near = Less (distance, window)
      low_end = LessOrEqual (keys, own)
      seen = And (near, low_end)
      low = Where (seen, nothing, billion)
      a = Where (seen, own_product, billion)
      scores = Add (a, low))"))
      << failure.str();
  // A mask below a fill takes part in what the fill is compared with.
  EXPECT_FALSE(plan(R"(seen = LessOrEqual (keys, own)
      within = Less (keys, limit)
      low = Where (within, nothing, billion)
      a = Add (own_product, low)
      scores = Where (seen, a, billion))"));
}

TEST(UniformValue, SeesThroughMovementAndCasts) {
  auto model = readOrFail(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64[2] shape, float x) => (float[A, B] a, float[A, B] b, float16[A, B] c, bool[1] d, float[2] e, float[2] f)
    <float[3] equal = {2, 2, 2}, float[2] different = {1, 2}, float low = {-3.4028234663852886e38}>
    {
      a = ConstantOfShape <value = float[1] {-7}> (shape)
      b = ConstantOfShape (shape)
      lows = Expand (low, shape)
      c = Cast <to = 10> (lows)
      threes = Identity (equal)
      d = Cast <to = 9> (threes)
      e = Identity (different)
      f = Add (different, x)
    })");
  ASSERT_TRUE(model);
  llvm::cantFail(inferShapes(model->graph()));
  auto of = [&](const char* name) { return uniformValue(*model->graph().findValue(name)); };
  EXPECT_EQ(of("a"), -7.0);
  EXPECT_EQ(of("b"), 0.0);
  EXPECT_EQ(of("c"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(of("d"), 1.0);
  EXPECT_EQ(of("e"), std::nullopt);
  EXPECT_EQ(of("f"), std::nullopt);
  EXPECT_EQ(of("x"), std::nullopt);
}

} // namespace
} // namespace kvopt
