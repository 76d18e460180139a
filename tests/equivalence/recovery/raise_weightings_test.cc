// Spellings of the softmax, and of what is done to its operand and to its result.
#include "tests/equivalence/recovery/raised_spelling.h"

namespace kvopt {
namespace {

constexpr Spelling weightingSpellings[] = {
    {"LogSoftmax", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      l = LogSoftmax <axis = -1> (m)
      p = Exp (l)
      o = MatMul (p, v))"},
    {"ExponentialsUnshifted", R"(qk = MatMul (q, kt)
      s = Mul (qk, quarter)
      e = Exp (s)
      sum = ReduceSum <keepdims = 1> (e, last)
      p = Div (e, sum)
      o = MatMul (p, v))"},
    {"OffByOne", R"(qk = MatMul (q, kt)
      s = Mul (qk, quarter)
      e = Exp (s)
      sum = ReduceSum <keepdims = 1> (e, last)
      more = Add (sum, one)
      p = Div (e, more)
      o = MatMul (p, v))"},
    {"OffByOneShifted", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      top = ReduceMax <axes = [-1]> (m)
      floor = Relu (top)
      below = Sub (m, floor)
      e = Exp (below)
      sum = ReduceSum <keepdims = 1> (e, last)
      minus = Neg (floor)
      rest = Exp (minus)
      more = Add (rest, sum)
      p = Div (e, more)
      o = MatMul (p, v))"},
    {"OffByOneAboveZero", R"(qk = MatMul (q, kt)
      top = ReduceMax <axes = [-1]> (qk)
      floor = Max (zero, top)
      below = Sub (qk, floor)
      e = Exp (below)
      sum = ReduceSum <keepdims = 1> (e, last)
      minus = Neg (floor)
      rest = Exp (minus)
      more = Add (sum, rest)
      p = Div (e, more)
      o = MatMul (p, v))"},
    {"OffByOneColumn", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      rows = Shape <end = 3> (q)
      repeated = Concat <axis = 0> (rows, single)
      column = Expand (zero, repeated)
      logits = Concat <axis = -1> (m, column)
      all = Softmax <axis = -1> (logits)
      p = Slice (all, begin, last, last)
      o = MatMul (p, v))"},
    {"OffByOnePadded", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      pads = Constant <value = int64[8] {0, 0, 0, 0, 0, 0, 0, 1}> ()
      logits = Pad (m, pads, zero)
      all = Softmax <axis = -1> (logits)
      p = Slice (all, begin, last, last)
      o = MatMul (p, v))"},
    {"KeysAsRows", R"(qt = Transpose <perm = [0, 1, 3, 2]> (q)
      kq = MatMul (k, qt)
      s = Mul (kq, quarter)
      maskt = Transpose <perm = [0, 1, 3, 2]> (mask)
      m = Add (s, maskt)
      p = Softmax <axis = 2> (m)
      pt = Transpose <perm = [0, 1, 3, 2]> (p)
      o = MatMul (pt, v))"},
    {"KeysAsRowsToTheEnd", R"(qt = Transpose <perm = [0, 1, 3, 2]> (q)
      kq = MatMul (k, qt)
      s = Div (kq, four)
      p = Softmax <axis = -2> (s)
      vt = Transpose <perm = [0, 1, 3, 2]> (v)
      ot = MatMul (vt, p)
      o = Transpose <perm = [0, 1, 3, 2]> (ot))"},
    {"FactorPerHead", R"(qk = MatMul (q, kt)
      per_head = Reshape (sink_values, head_axis)
      s = Mul (qk, per_head)
      m = Add (s, mask)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"DivisorPerRowBeforeCap", R"(qk = MatMul (q, kt)
      squares = Mul (q, q)
      sum = ReduceSum <keepdims = 1> (squares, last)
      positive = Add (sum, one)
      s = Div (qk, positive)
      t = Tanh (s)
      c = Mul (t, five)
      m = Add (c, mask)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"GatedScores", R"(qk = MatMul (q, kt)
      s = Div (qk, four)
      both = And (allowed, padding)
      kept = Cast <to = 1> (both)
      gated = Mul (s, kept)
      lost = Sub (one, kept)
      penalty = Mul (lost, ten_thousand)
      m = Add (gated, penalty)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"GatedScoresSubtracted", R"(qk = MatMul (q, kt)
      kept = Cast <to = 1> (allowed)
      gated = Mul (kept, qk)
      lost = Sub (one, kept)
      positive = Neg (billion)
      penalty = Mul (positive, lost)
      m = Sub (gated, penalty)
      p = Softmax <axis = -1> (m)
      o = MatMul (p, v))"},
    {"GatePerHead", R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      p = Softmax <axis = -1> (m)
      per_head = Reshape (sink_values, head_axis)
      g = Mul (p, per_head)
      o = MatMul (g, v))",
     R"(qk = MatMul (q, kt)
      m = Add (qk, mask)
      p = Softmax <axis = -1> (m)
      per_head = Reshape (sink_values, head_axis)
      g = Mul (p, per_head)
      o = MatMul (g, v))",
     2e-5},
    {"MaskedAfterwards", R"(qk = MatMul (q, kt)
      s = Mul (qk, fifth)
      all = Softmax <axis = -1> (s)
      kept = Cast <to = 1> (padding)
      some = Mul (all, kept)
      left = ReduceSum <keepdims = 1> (some, last)
      p = Div (some, left)
      o = MatMul (p, v))",
     nullptr, 2e-5},
    {"SelectedAfterwards", R"(qk = MatMul (q, kt)
      s = Mul (qk, fifth)
      all = Softmax <axis = -1> (s)
      some = Where (allowed, all, zero)
      left = ReduceSum <keepdims = 1> (some, last)
      p = Div (some, left)
      o = MatMul (p, v))",
     nullptr, 2e-5},
    {"Doubles", R"(qd = Cast <to = 11> (q)
      kd = Cast <to = 11> (k)
      vd = Cast <to = 11> (v)
      ktd = Transpose <perm = [0, 1, 3, 2]> (kd)
      qk = MatMul (qd, ktd)
      scale = Constant <value = double {0.25}> ()
      s = Mul (qk, scale)
      maskd = Cast <to = 11> (mask)
      m = Add (s, maskd)
      p = Softmax <axis = -1> (m)
      od = MatMul (p, vd)
      o = Cast <to = 1> (od))"},
    {"DoubleScores", R"(qd = Cast <to = 11> (q)
      kd = Cast <to = 11> (kt)
      qk = MatMul (qd, kd)
      low = Constant <value = double {-1.7976931348623157e308}> ()
      w = Where (allowed, qk, low)
      p = Softmax <axis = -1> (w)
      pf = Cast <to = 1> (p)
      o = MatMul (pf, v))"},
};

using RaiseWeightingsTest = RaisedSpellingTest;

TEST_P(RaiseWeightingsTest, ComputesTheSame) { expectTheSame(); }

INSTANTIATE_TEST_SUITE_P(All, RaiseWeightingsTest, testing::ValuesIn(weightingSpellings),
                         [](const auto& parameter) { return parameter.param.name; });

} // namespace
} // namespace kvopt
