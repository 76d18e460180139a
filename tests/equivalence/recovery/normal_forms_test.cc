// Normalized and stripped graphs compute bit for bit what the spelled-out ones compute, at several
// sizes of every symbol.
#include "tests/equivalence/recovery/spelled_graph.h"

namespace kvopt {
using namespace ir;

namespace {

using NormalizedTest = SpelledGraphTest;

TEST_P(NormalizedTest, ComputesTheSameBytes) {
  std::unique_ptr<Model> spelled = read();
  run(*spelled, "infer-shapes");
  std::unique_ptr<Model> normal = read();
  run(*normal, "infer-shapes,normalize,eliminate-dead-nodes,infer-shapes");
  expectGone(*normal);
  expectSame(*spelled, *normal);
}

using StrippedTest = SpelledGraphTest;

TEST_P(StrippedTest, ComputesTheSameBytes) {
  std::unique_ptr<Model> raised = read();
  run(*raised, "infer-shapes");
  ASSERT_EQ(count(*raised, "ai.kvopt::Sdpa"), 1u);
  std::unique_ptr<Model> stripped = read();
  run(*stripped, "infer-shapes,strip-gqa-broadcast,normalize,eliminate-dead-nodes,infer-shapes");
  EXPECT_EQ(count(*stripped, "ai.kvopt::Sdpa"), 1u);
  expectGone(*stripped);
  expectSame(*raised, *stripped);
}

const SpelledCase normalized[] = {
    {"RowsThatATableLeaves", sizes + R"(
  limit = Constant <value = int64 {64}> ()
  zero = Constant <value = int64 {0}> ()
  width = Constant <value = int64[1] {128}> ()
  flat_shape = Constant <value = int64[2] {-1, 128}> ()
  keys_now = Squeeze (t)
  added = Squeeze (s)
  earlier = Sub (keys_now, added)
  last = Min (keys_now, limit)
  first = Min (earlier, limit)
  left = Sub (last, first)
  rows = Max (zero, left)
  rows1 = Reshape (rows, open)
  shape = Concat <axis = 0> (b, rows1, width)
  rows_of_all = Reshape (projected, flat_shape)
  apart = Reshape <allowzero = 1> (rows_of_all, shape)
  o = Unsqueeze (apart, three)
)",
     "Max Min"},
    {"MaskFromTheShapeOfTheScores", R"(
  keys = Transpose <perm = [0, 1, 3, 2]> (k8)
  scores = MatMul (q, keys)
  scaled = Mul (scores, scale)
  whole = Shape (scaled)
  last = Shape <start = -1> (scaled)
  sized = Expand (mask, whole)
  column = Expand (unit, last)
  added = Add (sized, column)
  masked = Add (scaled, added)
  p = Softmax <axis = -1> (masked)
  o = MatMul (p, v8)
)",
     ""},
    {"TransposeThatKnowsNoRank", sizes + R"(
  k_flat = Concat <axis = 0> (open, t, wk)
  kf = Reshape (k8, k_flat)
  ktf = Transpose <perm = [0, 2, 1]> (kf)
  shape = Concat <axis = 0> (b, eight, wk, t)
  keys = Reshape <allowzero = 1> (ktf, shape)
)" + attention,
     "Reshape Shape Concat"},
    {"MovementsThatUndoEachOther", sizes + R"(
  shape = Shape (k8)
  wide = Expand (k8, shape)
  k1x = Mul (wide, unit1)
  turned = Transpose <perm = [0, 2, 1, 3]> (k1x)
  twice = Transpose <perm = [0, 2, 3, 1]> (turned)
  thrice = Transpose <perm = [0, 3, 2, 1]> (twice)
  added = Unsqueeze (thrice, three)
  removed = Squeeze (added, three)
  keys0 = Div (removed, unit)
  keys = Transpose <perm = [0, 3, 2, 1]> (keys0)
)" + attention,
     "Expand Unsqueeze Squeeze Div"},
    {"FlattenedWithTheMaskInFourAxes", sizes + flat + R"(
  scaled = Mul (scores, scale)
  biased = Add (scaled, bias)
  scores4 = Reshape (biased, wide)
  masked = Add (scores4, mask)
  p4 = Softmax <axis = -1> (masked)
  p = Reshape (p4, narrow)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     ""},
    {"FlattenedWithTheSoftmaxInThreeAxes", sizes + flat + R"(
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  masked3 = Reshape (masked, narrow)
  p = Softmax <axis = 2> (masked3)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     "Reshape"},
    {"FlattenedBeforeShapeHadARange", sizes13 + flat + R"(
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  p4 = Softmax <axis = 3> (masked)
  p = Reshape (p4, narrow)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     "Reshape", 13},
    {"FlattenedWithAGuardAgainstNaN", sizes + flat + R"(
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  p4 = Softmax <axis = -1> (masked)
  isnan = IsNaN (p4)
  zero = Constant <value = float[1] {0.0}> ()
  guarded = Where (isnan, zero, p4)
  p = Reshape (guarded, narrow)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     "Reshape"},
    {"FlattenedWithProbabilitiesReadElsewhere", sizes + flat + R"(
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  masked3 = Reshape (masked, narrow)
  p = Softmax <axis = -1> (masked3)
  of = MatMul (p, vf)
  of4 = Reshape (of, back)
  greatest = ReduceMax <axes = [0, 1, 2], keepdims = 0> (p)
  o = Add (of4, greatest)
)",
     ""},
    {"FiveAxesWithSharedKeys", sizes + R"(
  kt5 = Unsqueeze (kt, two)
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
    {"OneHeadInThreeAxes", sizes + R"(
  kt3 = Transpose <perm = [0, 2, 1]> (k3)
  mask3 = Squeeze (mask, one)
  scores = MatMul (q3, kt3)
  scaled = Mul (scores, scale)
  masked = Add (scaled, mask3)
  p = Softmax <axis = -1> (masked)
  o3 = MatMul (p, v3)
  o = Unsqueeze (o3, one)
)",
     "Squeeze"},
};

const std::string sdpa = R"(
  o = ai.kvopt.Sdpa <scale = 0.25> (q, kr, vr, mask)
)";
const std::string values = R"(
  v5 = Unsqueeze (v, two)
  vx = Expand (v5, times)
  vr = Reshape (vx, mv)
)";
const std::string keys5 = "  k5 = Unsqueeze (k, two)\n";

const SpelledCase stripped[] = {
    {"ExpandByAConstant", sizes + keys5 + values + R"(
  kx = Expand (k5, times)
  kr = Reshape (kx, mk)
)" + sdpa,
     "Expand Reshape"},
    {"ExpandByWhere", sizes + keys5 + values + R"(
  groups = Constant <value = int64[2] {2, 4}> ()
  asked = Concat <axis = 0> (b, groups, t, wk)
  length = Shape (asked)
  ones5 = ConstantOfShape <value = int64[1] {1}> (length)
  minus = Constant <value = int64 {-1}> ()
  open5 = Mul (ones5, minus)
  same = Equal (asked, open5)
  shape = Where (same, ones5, asked)
  kx = Expand (k5, shape)
  merged = Concat <axis = 0> (b, eight, t, wk)
  kr = Reshape (kx, merged)
)" + sdpa,
     "Expand Reshape Where"},
    {"Tile", sizes + keys5 + values + R"(
  kx = Tile (k5, times)
  kr = Reshape (kx, mk)
)" + sdpa,
     "Tile Expand Reshape"},
    {"ExpandAndTile", sizes + keys5 + values + R"(
  kw = Expand (k5, ones)
  kx = Tile (kw, times)
  kr = Reshape (kx, mk)
)" + sdpa,
     "Tile Expand Reshape"},
    {"Gather", sizes + R"(
  kr = Gather <axis = 1> (k, order)
  vr = Gather <axis = -3> (v, order)
)" + sdpa,
     "Gather"},
    {"ConcatWithItself", sizes + keys5 + values + R"(
  kx = Concat <axis = 2> (k5, k5, k5, k5)
  kr = Reshape (kx, mk)
)" + sdpa,
     "Concat Reshape"},
    {"OneHeadForAll", sizes + R"(
  kr = Tile (k1, all)
  like = Shape (v8)
  vr = Expand (v1, like)
)" + sdpa,
     "Tile Expand"},
    {"TransposedKeys", sizes + values + R"(
  kt5 = Unsqueeze (kt, two)
  ktx = Expand (kt5, times)
  ktr = Reshape (ktx, mkt)
  kr = Transpose <perm = [0, 1, 3, 2]> (ktr)
)" + sdpa,
     "Expand Reshape"},
    {"TokenMajorKeys", sizes + values + R"(
  ks5 = Unsqueeze (ks, three)
  ksx = Tile (ks5, inner)
  ksr = Reshape (ksx, tokens)
  kr = Transpose <perm = [0, 2, 1, 3]> (ksr)
)" + sdpa,
     "Tile Expand Reshape"},
    {"FlattenedGroups", sizes + values + R"(
  three_axes = Concat <axis = 0> (open, t, wk)
  kf = Reshape (k, three_axes)
  apart = Unsqueeze (kf, one)
  kx = Tile (apart, four)
  heads = Concat <axis = 0> (b, eight, t, wk)
  kr = Reshape (kx, heads)
)" + sdpa,
     "Tile Expand Reshape"},
    {"BehindACast", sizes + keys5 + values + R"(
  half = Cast <to = 10> (k5)
  kx = Expand (half, times)
  kh = Reshape (kx, mk)
  kr = Cast <to = 1> (kh)
)" + sdpa,
     "Expand Reshape"},
    {"BehindAScale", sizes + keys5 + values + R"(
  kx = Expand (k5, times)
  kl = Reshape (kx, mk)
  kr = Mul (scale, kl)
)" + sdpa,
     "Expand Reshape"},
    {"StackedQueries", sizes + R"(
  groups = Constant <value = int64[2] {0, 2}> ()
  qshape = Concat <axis = 0> (groups, open, wk)
  qs = Reshape (q, qshape)
  tiled = Tile (mask, four)
  mshape = Concat <axis = 0> (b, one, open, t)
  ms = Reshape (tiled, mshape)
  os = ai.kvopt.Sdpa <scale = 0.25> (qs, k, v, ms)
  shape = Concat <axis = 0> (b, eight, s, wv)
  o = Reshape <allowzero = 1> (os, shape)
)",
     "Reshape Tile"},
};

INSTANTIATE_TEST_SUITE_P(Spellings, NormalizedTest, testing::ValuesIn(normalized), spellingName);
INSTANTIATE_TEST_SUITE_P(Spellings, StrippedTest, testing::ValuesIn(stripped), spellingName);

} // namespace
} // namespace kvopt
