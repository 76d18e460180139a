// Operators compute what they mean in simpler ones, and nothing else.
#include "tests/check/checked_models.h"

namespace kvopt::check {
namespace {

/// Two spellings of one result, and nodes that compute another one.
struct Meaning {
  const char* name;
  const char* operators;
  const char* same;
  const char* other;
};

/// `x` is [B,S,4], `y` a function of it, `square` [B,S,S] and `column < row` compares [S,S] places.
std::string modelOf(const std::string& nodes) {
  return R"(<ir_version: 10, opset_import: ["" : 24, "com.microsoft" : 1]>
g (float[B, S, 4] inputs_embeds, int64[B, S] position_ids) => (result)
<int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64[1] l0 = {0}, int64[1] l1 = {1},
 int64[1] l2 = {2}, int64[1] l4 = {4}, int64[1] last = {-1}, int64[2] even = {0, 2},
 int64[4] both = {0, 0, 1, 1}, int64[4] turns = {0, 1, 0, 1}, int64[2] table = {-1, 4},
 int64[4] wide = {0, 0, 4, 2}, int64[4] narrow = {0, 0, 2, 2}, int64[3] joined = {0, 0, -1},
 float f0 = {0}, float two = {2}, float half = {0.5}, float quarter = {0.25}, float root = {0.70710678},
 float hidden = {-inf}, float[4] bias = {1, 2, 3, 5},
 float[4, 4] matrix = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17}>
{
  x = Identity (inputs_embeds)
  y = Tanh (x)
  turned = Transpose <perm = [0, 2, 1]> (y)
  square = MatMul (x, turned)
  extents = Shape (x)
  batch = Gather (extents, i0)
  count = Gather (extents, i1)
  column = Range (i0, count, i1)
  row = Unsqueeze (column, last)
  x4 = Unsqueeze (x, l1)
  y4 = Unsqueeze (y, l1)
  left = Slice (x, l0, l2, last)
  right = Slice (x, l2, l4, last)
  cosines = Cos (left)
  sines = Sin (left)
  list = Slice (extents, l0, l1)
  listed = Sub (count, i1)
  lengths64 = Expand (listed, list)
  lengths = Cast <to = 6> (lengths64)
  total = Cast <to = 6> (count)
  queries = Concat <axis = 2> (x, y)
)" + nodes +
         "}\n";
}

Verdict verdictOf(const std::string& before, const std::string& after) {
  auto first = read(modelOf(before)), second = read(modelOf(after));
  if (!first || !second)
    return Verdict::Skipped;
  const ir::Manifest none;
  return checkModels({*first, none}, {*second, none}).verdict();
}

/// Attention of four heads over two groups, where `heads` says which group each head reads and
/// `mask` which columns a row sees.
std::string grouped(const std::string& heads, const std::string& mask) {
  return "q0 = Reshape (queries, wide) q = Transpose <perm = [0, 2, 1, 3]> (q0) "
         "k0 = Reshape (x, narrow) k1 = Transpose <perm = [0, 2, 3, 1]> (k0) "
         "v0 = Reshape (y, narrow) v1 = Transpose <perm = [0, 2, 1, 3]> (v0) "
         "k = Gather <axis = 1> (k1, " +
         heads + ") v = Gather <axis = 1> (v1, " + heads +
         ") product = MatMul (q, k) scaled = Mul (product, root) earlier = LessOrEqual (column, "
         "row) " +
         mask +
         " scores = Where (seen, scaled, hidden) p = Softmax (scores) o = MatMul (p, v) "
         "o1 = Transpose <perm = [0, 2, 1, 3]> (o) result = Reshape (o1, joined) ";
}

const std::string nearKeys =
    "apart = Sub (row, column) near = Less (apart, i2) seen = And (earlier, near)";
const std::string groups = grouped("both", nearKeys), otherGroups = grouped("turns", nearKeys);
const std::string allKeys = grouped("both", "seen = Identity (earlier)");
constexpr const char* groupQuery =
    "result, k, v = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, "
    "local_window_size = 2> (queries, x, y, , , lengths, total)";

/// Attention of one head whose keys are those of `x` twice; `first` is the last key that the first
/// row sees.
std::string doubled(const std::string& first) {
  return "keys = Concat <axis = 2> (x4, y4) rest = Sub (count, count) twice = Add (count, count) "
         "more = Range (i0, twice, i1) shift = Identity (" +
         first +
         ") end = Add (row, shift) seen = LessOrEqual (more, end) "
         "k = Transpose <perm = [0, 1, 3, 2]> (keys) product = MatMul (x4, k) "
         "scaled = Mul (product, half) scores = Where (seen, scaled, hidden) p = Softmax (scores) "
         "result = MatMul (p, keys)";
}

const std::string fromTheStart = doubled("rest"), fromTheEnd = doubled("count");

const Meaning meanings[] = {
    {"Sub", "result = Sub (x, y)", "n = Neg (y) result = Add (x, n)", "result = Add (x, y)"},
    {"Greater", "c = Greater (x, y) result = Where (c, x, y)",
     "c = Less (y, x) result = Where (c, x, y)", "c = Less (x, y) result = Where (c, x, y)"},
    {"GreaterOrEqual", "c = GreaterOrEqual (x, y) result = Where (c, x, y)",
     "l = Less (x, y) c = Not (l) result = Where (c, x, y)",
     "l = Less (y, x) c = Not (l) result = Where (c, x, y)"},
    {"LessOrEqual", "c = LessOrEqual (column, row) result = Where (c, square, f0)",
     "next = Add (row, i1) c = Less (column, next) result = Where (c, square, f0)",
     "c = Less (column, row) result = Where (c, square, f0)"},
    {"Where", "c = Less (x, y) result = Where (c, x, y)",
     "l = Less (x, y) c = Not (l) result = Where (c, y, x)",
     "c = Less (x, y) result = Where (c, y, x)"},
    {"Trilu", "result = Trilu <upper = 0> (square)",
     "c = LessOrEqual (column, row) result = Where (c, square, f0)",
     "c = Less (column, row) result = Where (c, square, f0)"},
    {"Slice", "result = Slice (x, l0, l4, last, l2)", "result = Gather <axis = 2> (x, even)",
     "result = Slice (x, l0, l2, last)"},
    {"Split", "a, b = Split <axis = 2, num_outputs = 2> (x) result = Sub (a, b)",
     "result = Sub (left, right)", "result = Sub (right, left)"},
    {"Split of three", "a, b, c = Split <axis = 2, num_outputs = 3> (x) result = Identity (b)",
     "result = Slice (x, l2, l4, last)",
     "a, b = Split <axis = 2, num_outputs = 2> (x) result = Identity (a)"},
    {"Gemm",
     "t = Reshape (x, table) result = Gemm <transB = 1, alpha = 2.0, beta = 0.5> (t, matrix, bias)",
     "t = Reshape (x, table) m = Transpose (matrix) p = MatMul (t, m) d = Mul (p, two) "
     "h = Mul (bias, half) result = Add (d, h)",
     "t = Reshape (x, table) p = MatMul (t, matrix) d = Mul (p, two) h = Mul (bias, half) "
     "result = Add (d, h)"},
    {"ReduceMean", "result = ReduceMean (x, last)",
     "s = ReduceSum (x, last) result = Mul (s, quarter)", "result = ReduceSum (x, last)"},
    {"Softmax", "result = Softmax (square)",
     "e = Exp (square) s = ReduceSum (e, last) result = Div (e, s)", "result = Exp (square)"},
    {"TensorScatter",
     "b = Range (i0, batch, i1) start = Min (b, count) data = Concat <axis = 1> (y, y) "
     "result = TensorScatter <axis = 1> (data, x, start)",
     "b = Range (i0, batch, i1) start = Min (count, b) data = Concat <axis = 1> (y, y) "
     "result = TensorScatter <axis = 1> (data, x, start)",
     "b = Range (i0, batch, i1) start = Sub (b, b) data = Concat <axis = 1> (y, y) "
     "result = TensorScatter <axis = 1> (data, x, start)"},
    {"RotaryEmbedding",
     "rotated = RotaryEmbedding (x4, cosines, sines) result = Squeeze (rotated, l1)",
     "a = Mul (left, cosines) b = Mul (right, sines) first = Sub (a, b) "
     "c = Mul (left, sines) d = Mul (right, cosines) second = Add (c, d) "
     "result = Concat <axis = 2> (first, second)",
     "a = Mul (left, cosines) b = Mul (right, sines) first = Add (a, b) "
     "c = Mul (left, sines) d = Mul (right, cosines) second = Add (c, d) "
     "result = Concat <axis = 2> (first, second)"},
    {"Attention",
     "keys = Concat <axis = 2> (x4, y4) result = Attention <is_causal = 1> (x4, keys, keys)",
     fromTheStart.c_str(), fromTheEnd.c_str()},
    {"Attention's cached keys",
     "result4, k, v = Attention <is_causal = 1> (x4, y4, y4, , x4, x4) result = Identity (result4)",
     fromTheEnd.c_str(), fromTheStart.c_str()},
    {"Attention's lengths",
     "keys = Concat <axis = 2> (x4, y4) tokens = Expand (count, list) "
     "result = Attention <is_causal = 1> (x4, keys, keys, , , , tokens)",
     fromTheStart.c_str(), fromTheEnd.c_str()},
    {"OneHot",
     "places = Sub (column, count) ends = Slice (bias, l0, l2) hot = OneHot (places, count, ends) "
     "result = MatMul (hot, x)",
     "ends = Slice (bias, l0, l2) hot = OneHot (column, count, ends) result = MatMul (hot, x)",
     "places = Sub (listed, column) ends = Slice (bias, l0, l2) hot = OneHot (places, count, ends) "
     "result = MatMul (hot, x)"},
    {"GroupQueryAttention", groupQuery, groups.c_str(), otherGroups.c_str()},
    {"GroupQueryAttention's window", groupQuery, groups.c_str(), allKeys.c_str()},
};

TEST(CheckOperators, AreWhatTheyMean) {
  for (const Meaning& meaning : meanings) {
    EXPECT_LE(verdictOf(meaning.operators, meaning.same), Verdict::Tested) << meaning.name;
    EXPECT_EQ(verdictOf(meaning.operators, meaning.other), Verdict::Different) << meaning.name;
    EXPECT_EQ(verdictOf(meaning.other, meaning.operators), Verdict::Different) << meaning.name;
  }
}

TEST(CheckOperators, AWindowBeyondTheScopeIsNotProved) {
  auto windowed = [](const std::string& window) {
    return "result, k, v = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2" +
           window + "> (queries, x, y, , , lengths, total)";
  };
  EXPECT_EQ(verdictOf(windowed(""), windowed(", local_window_size = 6000")), Verdict::Tested);
}

} // namespace
} // namespace kvopt::check
