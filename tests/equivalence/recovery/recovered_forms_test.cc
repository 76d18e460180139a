// Attention spelled in three or five axes, with repeated heads or stacked rows, is recovered as one
// grouped Sdpa that reads keys and values where they come from, and computes the same.
#include "tests/equivalence/recovery/spelled_graph.h"

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

using RecoveredTest = SpelledGraphTest;

TEST_P(RecoveredTest, IsOneSdpaThatComputesTheSame) {
  std::unique_ptr<Model> spelled = read();
  run(*spelled, "infer-shapes");
  std::unique_ptr<Model> recovered = read();
  run(*recovered, "infer-shapes,normalize,raise-attention,normalize,strip-gqa-broadcast,normalize,"
                  "eliminate-dead-nodes,infer-shapes");
  unsigned attentions = 0;
  for (const Node& node : recovered->graph().nodes()) {
    EXPECT_NE(node.op().str(), "Softmax");
    EXPECT_NE(node.op().str(), "Expand");
    EXPECT_NE(node.op().str(), "Tile");
    if (node.op().str() != "ai.kvopt::Sdpa")
      continue;
    ++attentions;
    EXPECT_TRUE(node.operand(1)->isGraphInput()) << node.operand(1)->name().str();
    EXPECT_TRUE(node.operand(2)->isGraphInput()) << node.operand(2)->name().str();
    ASSERT_TRUE(node.operand(3));
    EXPECT_TRUE(node.operand(3)->isGraphInput()) << node.operand(3)->name().str();
  }
  EXPECT_EQ(attentions, 1u);
  expectSame(*spelled, *recovered, 1e-5f);
}

const SpelledCase recoveredSpellings[] = {
    {"TiledGroupsInFiveAxesByEinsum", sizes + R"(
  apart = Constant <value = int64[5] {0, 4, 2, -1, 16}> ()
  together = Constant <value = int64[4] {0, 8, -1, 12}> ()
  qt = Reshape (q, apart)
  scores = Einsum <equation = "bngsd,bgtd->bngst"> (qt, k)
  scaled = Mul (scores, scale)
  mask5 = Unsqueeze (mask, two)
  masked = Add (scaled, mask5)
  p = Softmax <axis = -1> (masked)
  ot = Einsum <equation = "bngst,bgtd->bngsd"> (p, v)
  o = Reshape (ot, together)
)",
     ""},
    {"FlattenedWithTheMaskInFourAxes", sizes + flat + R"(
  scaled = Mul (scores, scale)
  scores4 = Reshape (scaled, wide)
  masked = Add (scores4, mask)
  p4 = Softmax <axis = -1> (masked)
  p = Reshape (p4, narrow)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     ""},
    {"FlattenedAfterTheGroupsWereRepeated", sizes + R"(
  q_flat = Concat <axis = 0> (open, s, wk)
  k_flat = Concat <axis = 0> (open, t, wk)
  v_flat = Concat <axis = 0> (open, t, wv)
  k5 = Unsqueeze (k, two)
  kx = Expand (k5, times)
  kf = Reshape (kx, k_flat)
  ktf = Transpose <perm = [0, 2, 1]> (kf)
  v5 = Unsqueeze (v, two)
  vx = Tile (v5, times)
  vf = Reshape (vx, v_flat)
  qf = Reshape (q, q_flat)
  scores = MatMul (qf, ktf)
  wide = Concat <axis = 0> (b, eight, s, t)
  narrow = Concat <axis = 0> (open, s, t)
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  masked3 = Reshape (masked, narrow)
  p = Softmax <axis = -1> (masked3)
  of = MatMul (p, vf)
  back = Concat <axis = 0> (b, eight, s, wv)
  o = Reshape (of, back)
)",
     ""},
    {"FiveAxes", sizes + R"(
  k5 = Unsqueeze (k, two)
  kt5 = Transpose <perm = [0, 1, 2, 4, 3]> (k5)
  v5 = Unsqueeze (v, two)
  mask5 = Unsqueeze (mask, one)
  scores = MatMul (q5, kt5)
  scaled = Mul (scores, scale)
  masked = Add (scaled, mask5)
  p = Softmax <axis = -1> (masked)
  o5 = MatMul (p, v5)
  shape = Concat <axis = 0> (b, eight, s, wv)
  o = Reshape (o5, shape)
)",
     ""},
    {"HeadsStackedBeforeRows", sizes + R"(
  kr = Transpose <perm = [0, 1, 3, 2]> (k)
  groups = Constant <value = int64[2] {0, 2}> ()
  q_shape = Concat <axis = 0> (groups, open, wk)
  qs = Reshape (q, q_shape)
  scores = MatMul (qs, kr)
  wide = Tile (mask, four)
  m_shape = Concat <axis = 0> (b, one, open, t)
  ms = Reshape (wide, m_shape)
  masked = Add (scores, ms)
  p = Softmax <axis = -1> (masked)
  os = MatMul (p, v)
  back = Concat <axis = 0> (b, eight, s, wv)
  o = Reshape (os, back)
)",
     ""},
    {"RowsStackedBeforeHeads", sizes + R"(
  k_one = Squeeze (k1, one)
  v_one = Squeeze (v1, one)
  kt_one = Transpose <perm = [0, 2, 1]> (k_one)
  q_shape = Constant <value = int64[3] {0, -1, 16}> ()
  qs = Reshape (projected, q_shape)
  scores = MatMul (qs, kt_one)
  wide = Concat <axis = 0> (b, s, eight, t)
  scores4 = Reshape (scores, wide)
  rows = Transpose <perm = [0, 2, 1, 3]> (mask)
  masked = Add (scores4, rows)
  p4 = Softmax <axis = -1> (masked)
  narrow = Concat <axis = 0> (b, open, t)
  p = Reshape (p4, narrow)
  os = MatMul (p, v_one)
  back = Concat <axis = 0> (b, s, eight, wv)
  o = Reshape (os, back)
)",
     ""},
};

INSTANTIATE_TEST_SUITE_P(Spellings, RecoveredTest, testing::ValuesIn(recoveredSpellings),
                         spellingName);

} // namespace
} // namespace kvopt
