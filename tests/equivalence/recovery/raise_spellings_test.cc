// Spellings of attention and its masks.
#include "tests/equivalence/recovery/raised_spelling.h"

namespace kvopt {
namespace {

constexpr Spelling spellings[] = {
    {"Mul", R"(qk = MatMul (q, kt)
      s = Mul (quarter, qk)
      p = Softmax <axis = -1> (s)
      o = MatMul (p, v))"},
    {"DivideAfterMask", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      s = Div (m, four)
      p = Softmax <axis = 3> (s)
      o = MatMul (p, v))"},
    {"SplitRoot", R"(qs = Mul (q, root)
      ks = Mul (kt, root)
      qk = MatMul (qs, ks)
      m = Add (mask, qk)
      p = Softmax <axis = -1> (m)
      n = IsNaN (p)
      g = Where (n, zeros, p)
      o = MatMul (g, v))"},
    {"RunTimeScale", R"(shape = Shape (q)
      width = Slice (shape, last, end)
      width_float = Cast <to = 1> (width)
      deviation = Sqrt (width_float)
      inverse = Div (one, deviation)
      factor = Sqrt (inverse)
      qs = Mul (q, factor)
      ks = Mul (kt, factor)
      qk = MatMul (qs, ks)
      p = Softmax <axis = -1> (qk)
      o = MatMul (p, v))"},
    {"ScaleBeforeHeads", R"(biased = Add (hidden, projection_bias)
      scaled = Mul (biased, quarter)
      rows = Reshape (scaled, split)
      heads = Transpose <perm = [0, 2, 1, 3]> (rows)
      qk = MatMul (heads, kt)
      m = Add (qk, mask)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"ScaleOnKeys", R"(ks = Div (k, four)
      kst = Transpose <perm = [0, 1, 3, 2]> (ks)
      qk = MatMul (q, kst)
      p = Softmax <axis = -1> (qk)
      o = MatMul (p, v))"},
    {"NegativeScale", R"(qk = MatMul (q, kt)
      minus = Neg (quarter)
      s = Mul (qk, minus)
      m = Add (s, mask)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"SoftCap", R"(qk = MatMul (q, kt)
      s = Mul (qk, quarter)
      d = Div (s, five)
      t = Tanh (d)
      c = Mul (t, five)
      m = Add (c, mask)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"SoftCapByProducts", R"(qk = MatMul (q, kt)
      d = Mul (fifth, qk)
      t = Tanh (d)
      c = Mul (five, t)
      w = Where (allowed, c, lowest)
      p = Softmax <axis = -1> (w)
      o = MatMul (p, v))"},
    {"TanhOnly", R"(qk = MatMul (q, kt)
      t = Tanh (qk)
      p = Softmax <axis = -1> (t)
      o = MatMul (p, v))"},
    {"FillInfinite", R"(qk = MatMul (q, kt)
      s = Mul (qk, quarter)
      w = Where (allowed, s, minus_infinity)
      p = Softmax <axis = -1> (w)
      o = MatMul (p, v))"},
    {"FillInfiniteGuarded", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, minus_infinity)
      p = Softmax <axis = -1> (w)
      n = IsNaN (p)
      g = Where (n, zeros, p)
      o = MatMul (g, v))"},
    {"FillInverted", R"(qk = MatMul (q, kt)
      blocked = Not (allowed)
      w = Where (blocked, minus_infinity, qk)
      w2 = Where (padding, w, minus_infinity)
      p = Softmax <axis = -1> (w2)
      n = IsNaN (p)
      g = Where (n, zeros, p)
      o = MatMul (g, v))"},
    {"FillLowest", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, lowest)
      p = Softmax <axis = -1> (w)
      o = MatMul (p, v))"},
    {"FillExpanded", R"(qk = MatMul (q, kt)
      shape = Shape (mask)
      low = Expand (lowest, shape)
      w = Where (allowed, qk, low)
      p = Softmax <axis = -1> (w)
      o = MatMul (p, v))"},
    {"FillTenThousand", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, ten_thousand)
      p = Softmax <axis = -1> (w)
      o = MatMul (p, v))"},
    {"FillBillionScaled", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, billion)
      s = Mul (w, quarter)
      p = Softmax <axis = -1> (s)
      o = MatMul (p, v))"},
    {"FillTenThousandThenPadding", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, ten_thousand)
      pad = Where (padding, zero, lowest)
      m = Add (w, pad)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"PaddingThenFillTenThousand", R"(qk = MatMul (q, kt)
      pad = Where (padding, zero, lowest)
      m = Add (pad, qk)
      w = Where (allowed, m, ten_thousand)
      p = Softmax <axis = -1> (w)
      o = MatMul (p, v))"},
    {"FillLowestThenMask", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, lowest)
      m = Add (w, mask)
      p = Softmax <axis = -1> (m)
      n = IsNaN (p)
      g = Where (n, zeros, p)
      o = MatMul (g, v))"},
    {"BiasThenMask", R"(qk = MatMul (q, kt)
      b = Add (bias, qk)
      m = Add (b, mask)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"BiasThenFillInfinite", R"(qk = MatMul (q, kt)
      b = Add (qk, bias)
      w = Where (allowed, b, minus_infinity)
      p = Softmax <axis = -1> (w)
      o = MatMul (p, v))"},
    {"FillInfiniteThenBias", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, minus_infinity)
      b = Add (w, bias)
      p = Softmax <axis = -1> (b)
      o = MatMul (p, v))"},
    {"MaximumOfLowest", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, lowest)
      m = Add (w, mask)
      x = Max (m, lowest)
      p = Softmax <axis = -1> (x)
      o = MatMul (p, v))"},
    {"SubtractedMask", R"(qk = MatMul (q, kt)
      negative = Neg (mask)
      b = Sub (qk, negative)
      w = Where (allowed, b, lowest)
      x = Clip (w, lowest)
      p = Softmax <axis = -1> (x)
      o = MatMul (p, v))"},
    {"CastsOfOneType", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      c = Cast <to = 1> (m)
      p = Softmax <axis = -1> (c)
      d = Cast <to = 1> (p)
      e = Cast <to = 1> (d)
      o = MatMul (e, v))"},
    {"FusedPermutation", R"(rows = Transpose <perm = [0, 2, 1, 3]> (k)
      columns = Transpose <perm = [0, 2, 3, 1]> (rows)
      qk = MatMul (q, columns)
      s = Mul (qk, quarter)
      m = Add (s, mask)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"SpelledSoftmax", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      top = ReduceMax <axes = [-1]> (m)
      below = Sub (m, top)
      e = Exp (below)
      sum = ReduceSum <keepdims = 1> (e, last)
      p = Div (e, sum)
      o = MatMul (p, v))"},
    {"ShiftedSoftmax", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      top = ReduceMax <axes = [-1]> (m)
      below = Sub (m, top)
      p = Softmax <axis = -1> (below)
      o = MatMul (p, v))"},
    {"SafeSoftmax", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, minus_infinity)
      p = Softmax <axis = -1> (w)
      is_masked = Equal (w, minus_infinity)
      as_number = Cast <to = 7> (is_masked)
      least = ReduceMin <axes = [-1], keepdims = 1> (as_number)
      whole_row = Cast <to = 9> (least)
      shape = Shape (p)
      nothing = Expand (zero, shape)
      g = Where (whole_row, nothing, p)
      o = MatMul (g, v))"},
    {"GuardSeenInHalfPrecision", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, minus_infinity)
      p = Softmax <axis = -1> (w)
      narrow = Cast <to = 10> (p)
      n = IsNaN (narrow)
      g = Where (n, zeros, p)
      o = MatMul (g, v))"},
    {"GuardByMask", R"(hidden_bias = Where (allowed, mask, minus_infinity)
      qk = MatMul (q, kt)
      m = Add (qk, hidden_bias)
      p = Softmax <axis = -1> (m)
      top = ReduceMax (hidden_bias, last)
      whole_row = Equal (top, minus_infinity)
      g = Where (whole_row, zeros, p)
      o = MatMul (g, v))",
     nullptr, 1e-5, 18},
    {"GuardByMaskOfTwoAxes", R"(tri = Where (allowed, zeros, minus_infinity)
      qk = MatMul (q, kt)
      b = Add (qk, bias)
      m = Add (tri, b)
      s = Mul (m, quarter)
      p = Softmax <axis = -1> (s)
      top = ReduceMax <axes = [1]> (tri)
      whole_row = Equal (minus_infinity, top)
      g = Where (whole_row, zeros, p)
      o = MatMul (g, v))"},
    {"GuardByScores", R"(qk = MatMul (q, kt)
      w = Where (allowed, qk, minus_infinity)
      p = Softmax <axis = -1> (w)
      top = ReduceMax <axes = [-1]> (w)
      whole_row = Equal (top, minus_infinity)
      g = Where (whole_row, zeros, p)
      o = MatMul (g, v))"},
    {"GuardByNarrowMask", R"(tri = Where (allowed, zeros, minus_infinity)
      narrow = Cast <to = 10> (tri)
      wide = Cast <to = 1> (narrow)
      qk = MatMul (q, kt)
      m = Add (qk, wide)
      p = Softmax <axis = -1> (m)
      low = Constant <value = float16[1] {-inf}> ()
      top = ReduceMax <axes = [-1]> (narrow)
      whole_row = Equal (top, low)
      g = Where (whole_row, zeros, p)
      o = MatMul (g, v))"},
    {"Sinks", R"(qk = MatMul (q, kt)
      s = Mul (qk, quarter)
      m = Add (s, mask)
      per_head = Reshape (sink_values, head_axis)
      rows = Shape <end = 3> (q)
      repeated = Concat <axis = 0> (rows, single)
      column = Expand (per_head, repeated)
      logits = Concat <axis = -1> (m, column)
      top = ReduceMax <axes = [-1], keepdims = 1> (logits)
      below = Sub (logits, top)
      all = Softmax <axis = -1> (below)
      p = Slice (all, begin, last, last)
      o = MatMul (p, v))"},
    {"OldSoftmax", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      p = Softmax <axis = 3> (m)
      o = MatMul (p, v))",
     nullptr, 1e-5, 11},
    {"Dropout", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      p = Softmax <axis = 3> (m)
      d = Dropout (p, ratio, training)
      o = MatMul (d, v))",
     R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      p = Softmax <axis = 3> (m)
      o = MatMul (p, v))"},
    {"Einsum", R"(rows = Transpose <perm = [0, 2, 1, 3]> (q)
      qk = Einsum <equation = "bshd,bhtd->bhst"> (rows, k)
      s = Mul (qk, quarter)
      m = Add (s, mask)
      p = Softmax <axis = -1> (m)
      r = Einsum <equation = "bhst,bhtd->bshd"> (p, v)
      o = Transpose <perm = [0, 2, 1, 3]> (r))"},
    {"HalfStorage", R"(qh = Cast <to = 10> (q)
      kh = Cast <to = 10> (kt)
      vh = Cast <to = 10> (v)
      qk = MatMul (qh, kh)
      low = Where (allowed, zero_half, lowest_half)
      m = Add (qk, low)
      c = Cast <to = 1> (m)
      p = Softmax <axis = -1> (c)
      ph = Cast <to = 10> (p)
      oh = MatMul (ph, vh)
      o = Cast <to = 1> (oh))",
     nullptr, 2e-3, 17, true},
    {"HalfStorageFilled", R"(qh = Cast <to = 10> (q)
      kh = Cast <to = 10> (kt)
      vh = Cast <to = 10> (v)
      qk = MatMul (qh, kh)
      w = Where (allowed, qk, lowest_half)
      p = Softmax <axis = -1> (w)
      oh = MatMul (p, vh)
      o = Cast <to = 1> (oh))",
     nullptr, 2e-3, 17, true},
    {"HalfStorageUpcast", R"(qh = Cast <to = 10> (q)
      kh = Cast <to = 10> (k)
      vh = Cast <to = 10> (v)
      qf = Cast <to = 1> (qh)
      kf = Cast <to = 1> (kh)
      kft = Transpose <perm = [0, 1, 3, 2]> (kf)
      qk = MatMul (qf, kft)
      m = Add (qk, mask)
      p = Softmax <axis = -1> (m)
      ph = Cast <to = 10> (p)
      oh = MatMul (ph, vh)
      o = Cast <to = 1> (oh))",
     nullptr, 2e-3, 17, true},
};

using RaiseSpellingsTest = RaisedSpellingTest;

TEST_P(RaiseSpellingsTest, ComputesTheSame) { expectTheSame(); }

INSTANTIATE_TEST_SUITE_P(All, RaiseSpellingsTest, testing::ValuesIn(spellings),
                         [](const auto& parameter) { return parameter.param.name; });

} // namespace
} // namespace kvopt
