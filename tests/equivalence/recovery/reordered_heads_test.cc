// Attention whose query heads read key and value heads in an order of their own computes, grouped,
// bit for bit what it did.
#include "tests/equivalence/recovery/spelled_graph.h"

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

using ReorderedHeadsTest = SpelledGraphTest;

TEST_P(ReorderedHeadsTest, ComputesTheSameBytes) {
  std::unique_ptr<Model> before = read();
  run(*before, "infer-shapes");
  ASSERT_EQ(count(*before, "ai.kvopt::Sdpa"), 1u);
  std::unique_ptr<Model> after = read();
  run(*after, "infer-shapes,strip-gqa-broadcast,normalize,eliminate-dead-nodes,infer-shapes");
  EXPECT_EQ(count(*after, "ai.kvopt::Sdpa"), 1u);
  for (const Node& node : after->graph().nodes())
    if (node.op() == OpName("ai.kvopt::Sdpa")) {
      EXPECT_EQ(node.operand(1)->type().dim(1).value(), 2);
      EXPECT_EQ(node.operand(2)->type().dim(1).value(), 2);
    }
  expectGone(*after);
  expectSame(*before, *after);
}

/// Keys and values that are picked by `indices`.
std::string picked(const std::string& indices) {
  return "  table = Constant <value = int64[8] {" + indices + R"(}> ()
  kr = Gather <axis = 1> (k, table)
  vr = Gather <axis = 1> (v, table)
)";
}

const std::string plain = R"(
  o = ai.kvopt.Sdpa <scale = 0.25> (q, kr, vr, mask)
)";

const SpelledCase reordered[] = {
    {"TiledByTile", R"(
  kr = Tile (k, four)
  vr = Tile (v, four)
)" + plain,
     "Tile"},
    {"TiledInFiveAxes", sizes + R"(
  k5 = Unsqueeze (k, one)
  kx = Expand (k5, before)
  kr = Reshape (kx, mk)
  v5 = Unsqueeze (v, one)
  vx = Tile (v5, before)
  vr = Reshape (vx, mv)
)" + plain,
     "Expand Tile"},
    {"TiledByConcat", R"(
  kr = Concat <axis = 1> (k, k, k, k)
  vr = Concat <axis = 1> (v, v, v, v)
)" + plain,
     "Concat"},
    {"TiledTransposedKeys", R"(
  ktx = Tile (kt, four)
  kr = Transpose <perm = [0, 1, 3, 2]> (ktx)
  vr = Tile (v, four)
)" + plain,
     "Tile"},
    {"AnyTable", picked("0, 1, 1, 0, 1, 0, 0, 1") + plain, ""},
    {"AnyTableFromTheEnd", picked("-1, 1, 0, 0, 1, -2, 0, 1") + plain, ""},
    {"AnyTableByGatherND", R"(
  table = Constant <value = int64[8, 1] {1, 0, 0, 1, 1, 0, 1, 0}> ()
  kt0 = Transpose <perm = [1, 0, 2, 3]> (k)
  kg = GatherND (kt0, table)
  kr = Transpose <perm = [1, 0, 2, 3]> (kg)
  vt0 = Transpose <perm = [1, 0, 2, 3]> (v)
  vg = GatherND <batch_dims = 0> (vt0, table)
  vr = Transpose <perm = [1, 0, 2, 3]> (vg)
)" + plain,
     "GatherND"},
    {"ReversedThenRepeated", R"(
  last = Constant <value = int64[1] {-1}> ()
  lowest = Constant <value = int64[1] {-9223372036854775808}> ()
  kf = Slice (k, last, lowest, one, last)
  k5 = Unsqueeze (kf, two)
  kx = Expand (k5, times)
  kr = Reshape (kx, mk)
  vf = Slice (v, last, lowest, one, last)
  v5 = Unsqueeze (vf, two)
  vx = Expand (v5, times)
  vr = Reshape (vx, mv)
)" + plain,
     "Slice Expand"},
    {"StackedHeadByHead", R"(
  h0 = Constant <value = int64 {0}> ()
  h1 = Constant <value = int64 {1}> ()
  ka0 = Gather <axis = 1> (k, h0)
  kb0 = Gather <axis = 1> (k, h1)
  ka = Unsqueeze (ka0, one)
  kb = Unsqueeze (kb0, one)
  kr = Concat <axis = 1> (kb, kb, ka, ka, ka, kb, kb, ka)
  at0 = Constant <value = int64[1] {0}> ()
  va = Slice (v, at0, one, one)
  vb = Slice (v, one, two, one)
  vr = Concat <axis = 1> (vb, vb, va, va, va, vb, vb, va)
)" + plain,
     "Concat Slice"},
    {"BehindAScale", R"(
  half = Constant <value = float {0.5}> ()
  kt0 = Tile (k, four)
  kr = Mul (kt0, half)
  vr = Tile (v, four)
)" + plain,
     "Tile"},
    {"WithAMaskForEachHead", sizes + R"(
  by_head = Concat <axis = 0> (b, eight, one, t)
  slopes = Reshape (bias, by_head)
  kr = Tile (k, four)
  vr = Tile (v, four)
  o = ai.kvopt.Sdpa <scale = 0.25> (q, kr, vr, slopes)
)",
     "Tile"},
    {"WithSinksAndACausalMask", R"(
  logits = Constant <value = float[8] {0.1, -1.5, 2.0, 0.3, 0.7, -0.2, 1.1, 3.0}> ()
  kr = Tile (k, four)
  vr = Tile (v, four)
  o = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, kr, vr, , logits)
)",
     "Tile"},
};

INSTANTIATE_TEST_SUITE_P(All, ReorderedHeadsTest, testing::ValuesIn(reordered), spellingName);

} // namespace
} // namespace kvopt
