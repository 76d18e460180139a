// Operators have no value for operands that do not fit, and integers those that their types hold.
#include "tests/check/checked_models.h"

namespace kvopt::check {
namespace {

/// The verdict of two lists of nodes that compute `result`.
Verdict verdictOfNodes(const std::string& before, const std::string& after) {
  auto modelOfNodes = [](const std::string& nodes) {
    return read(R"(<ir_version: 8, opset_import: ["" : 24]>
g (float[B, S, 4] inputs_embeds, int64[B, S] position_ids) => (result)
<int64 i0 = {0}, int64 i1 = {1}, int64 i3 = {3}, int64 minus = {-1}, int64[1] last = {-1}, int64[1] l1 = {1},
 int64[1] l3 = {3}, int64[1] l5 = {5}, int64[2] l11 = {1, 1}, int64[3] wide = {1, 3, 1}, int32 narrow = {1}, int8 n100 = {100}, int8 n2 = {2},
 float half = {0.5}, float zero = {0}, float two = {2}, float hidden = {-inf}, float fill = {-1e30}, bool on = {1},
 bool off = {0}, uint8 u1 = {1},
 float[4, 4, 2] taps = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17}>
{
  x = Identity (inputs_embeds)
  p = Identity (position_ids)
)" + nodes + "}\n");
  };
  const auto first = modelOfNodes(before), second = modelOfNodes(after);
  if (!first || !second)
    return Verdict::Proved;
  const ir::Manifest none;
  return checkModels({*first, none}, {*second, none}).verdict();
}

/// Nodes that no step accepts prove nothing, whatever follows them.
void expectNoValue(const std::string& nodes) {
  EXPECT_EQ(verdictOfNodes(nodes + "result = Tanh (y)",
                           nodes + "n = Neg (y) m = Neg (n) result = Tanh (m)"),
            Verdict::Skipped)
      << nodes;
}

TEST(CheckNoValue, AResultOfAFunctionNeedsNoOther) {
  // The first result has an exponential of an exponential, which is compared.
  auto modelOf = [](const std::string& second) {
    return read(R"(<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
g (float[B, S, 4] inputs_embeds) => (open, plain)
{
  open, both = own.f (inputs_embeds)
  plain = Tanh (both)
}
<domain: "own", opset_import: ["" : 18]>
f (x) => (open, both)
{
  q = Exp (x)
  r = Exp (q)
  t = Equal (r, x)
  open = Where (t, q, x)
  both = )" + second +
                "\n}\n");
  };
  const auto first = modelOf("Add (x, x)"), other = modelOf("Mul (x, x)");
  ASSERT_TRUE(first && other);
  const ir::Manifest none;
  const CheckReport report = checkModels({*first, none}, {*other, none});
  EXPECT_EQ(report.verdict(), Verdict::Different);
  EXPECT_EQ(report.count(Verdict::Skipped), 1u); // the other output
}

TEST(CheckNoValue, OperandsOfDifferentTypesAreRefusedByEveryEngine) {
  EXPECT_EQ(verdictOfNodes("c = Less (p, i1) y = Where (c, half, zero) result = Tanh (y)",
                           "c = Less (p, i1) y = Where (c, c, zero) result = Tanh (y)"),
            Verdict::Different);
}

TEST(CheckNoValue, IndicesBeyondTheData) {
  const std::string places = "z = Mul (p, i0) u = Unsqueeze (z, last) w = Tile (u, wide) ";
  expectNoValue(places + "y = GatherElements <axis = 2> (x, w) ");
  const std::string updates = "v = Cast <to = 1> (w) ";
  expectNoValue(places + updates + "y = ScatterElements <axis = 2> (x, w, v) ");
  expectNoValue(places + "y = ScatterElements <axis = 2> (x, u, x) ");
  expectNoValue(places + "c = Concat <axis = 2> (x, x) y = TensorScatter <axis = 1> (x, c) ");
  expectNoValue("s = Split <axis = 2, num_outputs = 1> (x) y = Transpose <perm = [0, 0, 1]> (s) ");
}

/// A softmax with `top` subtracted from its scores.
std::string shifted(const std::string& top) {
  return "t = Transpose <perm = [0, 2, 1]> (x) product = MatMul (x, t) e = Shape (x) "
         "count = Gather (e, i1) column = Range (i0, count, i1) row = Unsqueeze (column, last) "
         "seen = LessOrEqual (column, row) s = Where (seen, product, hidden) " +
         top + " d = Sub (s, m) q = Exp (d) r = ReduceSum (q, last) result = Div (q, r)";
}

TEST(CheckNoValue, BoundsAndMeansOfNothingAreNotDecided) {
  for (const char* op : {"ReduceMax", "ReduceMin", "ReduceMean"}) {
    const std::string reduced = std::string(" r = ") + op + " (none, last) result = Tanh (r)";
    EXPECT_EQ(verdictOfNodes("none = Slice (x, l1, l1, last)" + reduced,
                             "two_x = Mul (x, two) none = Slice (two_x, l1, l1, last)" + reduced),
              Verdict::Skipped)
        << op;
  }
}

TEST(CheckNoValue, WhatIsNotDecidedIsNotLookedAt) {
  const std::string mean = "s = Slice (x, l1, l1, last) y = ReduceMean (s, last) ";
  const std::string infinity = "z = Sub (x, x) y = Div (half, z) ";
  for (const char* look : {"t = IsNaN (y) ", "t = IsInf (y) ", "t = Cast <to = 9> (y) "}) {
    const std::string before = std::string(look) + "result = Where (t, half, two)";
    const std::string after = std::string(look) + "result = Where (t, zero, two)";
    EXPECT_EQ(verdictOfNodes(mean + before, mean + after), Verdict::Skipped) << look;
    EXPECT_EQ(verdictOfNodes(infinity + before, "result = Identity (x)"), Verdict::Skipped) << look;
  }
}

TEST(CheckNoValue, WhatIsNotANumberDoesNotEqualItself) {
  const std::string nodes = "z = Sub (x, x) y = Div (z, z) t = Equal (y, y) ";
  const std::string result = "result = Where (t, half, x)";
  EXPECT_LE(verdictOfNodes(nodes + result, "t = Identity (off) " + result), Verdict::ProvedReduced);
  EXPECT_EQ(verdictOfNodes(nodes + result, "t = Identity (on) " + result), Verdict::Different);
}

TEST(CheckNoValue, NumbersThatDifferInGeneralCanBeEqual) {
  // Half of all numbers equal their absolute value, and no number but zero equals twice that.
  const std::string result = "a = Abs (y) t = Equal (a, x) result = Where (t, half, two)";
  EXPECT_EQ(verdictOfNodes("y = Identity (x) " + result, "y = Mul (x, two) " + result),
            Verdict::Different);
  EXPECT_LE(verdictOfNodes("y = Identity (x) " + result,
                           "n = Neg (x) y = Neg (n) a = Abs (y) t = Equal (x, a) "
                           "result = Where (t, half, two)"),
            Verdict::ProvedReduced);
}

TEST(CheckNoValue, WhatAnOrderHidesIsHiddenInThatOrderOnly) {
  // Scores are doubled in one step, which has two of them. Only an order that hides neither shows
  // it.
  const std::string doubled = "e = Shape (p) single = Equal (e, l11) some = Cast <to = 1> (single) "
                              "all = ReduceMin <keepdims = 0> (some) more = Add (all, half) "
                              "times = Add (more, half) t = Mul (s, times) ";
  // Both models compute the scores alike, or in two ways that are proved equal first.
  const std::string hides = "s = Where (near, c, hidden) ";
  const std::string shows = "far = Not (near) s = Where (far, hidden, c) ";
  const std::string weights = "w = Softmax <axis = 2> (t) result = Tanh (w)";
  for (const std::string& way : {hides, shows})
    for (const char* bound : {"half", "two", "zero"}) {
      const std::string near =
          std::string("c = Slice (x, l1, l3, last) near = LessOrEqual (c, ") + bound + ") ";
      EXPECT_EQ(verdictOfNodes(near + hides + "t = Identity (s) " + weights,
                               near + way + doubled + weights),
                Verdict::Different)
          << way << bound;
    }
}

TEST(CheckNoValue, ADifferenceHasTheSmallestStep) {
  auto modelOf = [](const std::string& nodes) {
    return read("<ir_version: 8, opset_import: [\"\" : 18]>\n"
                "g (float[B, S, 4] inputs_embeds) => (first, second)\n"
                "<int64 i1 = {1}, int64 i2 = {2}, float one = {1}, float two = {2}>\n{\n" +
                nodes + "}\n");
  };
  // The first output differs from three tokens on, the second one always.
  const auto before = modelOf("first = Tanh (inputs_embeds) second = Exp (inputs_embeds)");
  const auto after =
      modelOf("e = Shape (inputs_embeds) count = Gather (e, i1) few = LessOrEqual (count, i2) "
              "times = Where (few, one, two) many = Mul (inputs_embeds, times) "
              "first = Tanh (many) twice = Mul (inputs_embeds, two) second = Exp (twice)");
  ASSERT_TRUE(before && after);
  const ir::Manifest none;
  const CheckReport report = checkModels({*before, none}, {*after, none});
  ASSERT_EQ(report.count(Verdict::Different), 2u);
  for (const Obligation& part : report.obligations)
    if (part.isOutput) {
      EXPECT_EQ(part.counterexample.tokens, part.after == "first" ? 3 : 1) << part.after;
    }
}

TEST(CheckNoValue, ARowThatSeesNoKeyIsSomeFiniteNumber) {
  // The first row sees no key, for which the mask has a finite number.
  const std::string scores =
      "t = Transpose <perm = [0, 2, 1]> (x) product = MatMul (x, t) e = Shape (x) "
      "count = Gather (e, i1) column = Range (i0, count, i1) row = Unsqueeze (column, last) "
      "seen = Less (column, row) s = Where (seen, product, fill) ";
  const std::string guarded = "m = ReduceMax (s, last) d = Sub (s, m) q = Exp (d) "
                              "r = ReduceSum (q, last) none = Equal (r, zero) w = Div (q, r) ";
  // It is not compared, although nothing is hidden in the step.
  EXPECT_EQ(verdictOfNodes(scores + "result = Softmax (s)",
                           scores + guarded + "result = Where (none, zero, w)"),
            Verdict::Tested);
  EXPECT_GE(verdictOfNodes(scores + "result = Softmax (s)",
                           scores + guarded + "result = Where (none, w, zero)"),
            Verdict::Different);
  // What an unknown truth chooses is not a known number.
  const std::string sum = "u = Mul (x, zero) result = Add (u, v)";
  EXPECT_GE(verdictOfNodes(scores + "z = Equal (row, i0) v = Where (z, zero, two) " + sum,
                           scores + guarded + "v = Where (none, half, two) " + sum),
            Verdict::Different);
}

TEST(CheckNoValue, AnInverseOfZeroIsNotDecided) {
  // 1 / (-1 / 0) is zero.
  const std::string inverse = "d = Div (two, t) result = Reciprocal (d)";
  EXPECT_EQ(verdictOfNodes("t = Mul (x, zero) " + inverse, "t = Identity (x) " + inverse),
            Verdict::Skipped);
}

TEST(CheckNoValue, AttributesThatNoEngineTakes) {
  expectNoValue("y = Cast <to = 0> (x) ");
  expectNoValue("y = Softmax <axis = -1, causal = 1> (x) ");
  expectNoValue("c = Slice (x, l1, l3, last) y = RotaryEmbedding <num_heads = 0> (x, c, c) ");
}

TEST(CheckNoValue, LimitsOfClipHaveOneElement) {
  expectNoValue("y = Clip (half, x, two) ");
  expectNoValue("y = Clip (x, x) ");
}

TEST(CheckNoValue, ABoundDoesNotCancelInASum) {
  // The sum of the centered numbers is zero, and so is its product with any constant.
  const std::string centered = "mean = ReduceMean (x, last) c = Sub (x, mean) ";
  const std::string sum = " y = Mul (c, b) result = ReduceSum (y, last)";
  EXPECT_EQ(
      verdictOfNodes(centered + "b = Max (c, half)" + sum, centered + "b = Max (c, two)" + sum),
      Verdict::Different);
}

TEST(CheckNoValue, AMinimumIsMinusInfinityIfAnOperandIs) {
  EXPECT_EQ(verdictOfNodes(shifted("m = ReduceMax (s, last)"), shifted("m = ReduceMin (s, last)")),
            Verdict::Different);
}

TEST(CheckNoValue, NarrowIntegersWrapAround) {
  const std::string negative = "a = Mul (p, minus) ";
  for (const char* type : {"2", "3", "4", "5", "9", "12"}) {
    const bool holdsAll = *type == '3' || *type == '5'; // int8 and int16 hold all positions
    EXPECT_EQ(verdictOfNodes(negative + "result = Identity (a)",
                             negative + "b = Cast <to = " + type +
                                 "> (a) result = Cast <to = 7> (b)") <= Verdict::Tested,
              holdsAll)
        << type;
  }
  // 100 + 100 is -56 in 8 bits.
  const std::string sum = "z = Mul (p, i0) c = Cast <to = 3> (z) a = Add (c, n100) ";
  EXPECT_EQ(verdictOfNodes(sum + "b = Add (a, n100) result = Cast <to = 7> (b)",
                           "d = Add (p, i3) result = Sub (d, p)"),
            Verdict::Different);
  EXPECT_EQ(
      verdictOfNodes(sum + "b = Add (a, n100) result = Cast <to = 7> (b)",
                     sum + "s = Cast <to = 7> (a) h = Cast <to = 7> (n100) result = Add (s, h)"),
      Verdict::Different);
}

TEST(CheckNoValue, UnsignedIntegersOf64BitsAreNotNegative) {
  EXPECT_GT(verdictOfNodes("a = Mul (p, minus) result = Identity (a)",
                           "a = Mul (p, minus) b = Cast <to = 13> (a) c = Cast <to = 7> (b) "
                           "d = Max (c, i0) result = Add (a, d)"),
            Verdict::Tested);
}

TEST(CheckNoValue, DropoutMayDropUnlessItsTrainingModeIsOff) {
  const std::string same = "result = Tanh (x)";
  EXPECT_EQ(verdictOfNodes(same, "d = Dropout (x, half, off) result = Tanh (d)"), Verdict::Proved);
  EXPECT_EQ(verdictOfNodes(same, "d = Dropout (x, half) result = Tanh (d)"), Verdict::Proved);
  EXPECT_GT(verdictOfNodes(same, "d = Dropout (x, half, on) result = Tanh (d)"), Verdict::Tested);
  EXPECT_GT(verdictOfNodes(same, "c = Size (p) o = Cast <to = 9> (c) d = Dropout (x, half, o) "
                                 "result = Tanh (d)"),
            Verdict::Tested);
}

TEST(CheckNoValue, AnotherElementTypeIsAnotherResult) {
  EXPECT_EQ(verdictOfNodes("result = Identity (p)", "result = Cast <to = 6> (p)"),
            Verdict::Different);
}

TEST(CheckNoValue, OperandsOfMixedTypes) {
  expectNoValue("y = MatMul (x, n2) ");
  expectNoValue("c = Less (p, i1) w = Where (c, p, on) y = Cast <to = 1> (w) ");
  expectNoValue("w = Add (p, narrow) y = Cast <to = 1> (w) ");
  expectNoValue("y = Concat <axis = 1> (x, p) ");
}

TEST(CheckNoValue, PaddingOfAConvolution) {
  const std::string data = "t = Transpose <perm = [0, 2, 1]> (x) ",
                    twice = "n = Neg (t) m = Neg (n) ";
  auto padded = [&](const std::string& padding, const std::string& operand) {
    return "c = Conv <" + padding + "> (" + operand + ", taps) result = Tanh (c)";
  };
  const std::string valid = data + padded("auto_pad = \"VALID\"", "t");
  EXPECT_EQ(verdictOfNodes(valid, data + twice + padded("auto_pad = \"SAME_UPPER\"", "m")),
            Verdict::Skipped);
  EXPECT_LE(verdictOfNodes(valid, data + twice + padded("pads = [0, 0]", "m")), Verdict::Tested);
  EXPECT_EQ(verdictOfNodes(valid, data + twice + padded("pads = [1, 0]", "m")), Verdict::Different);
}

TEST(CheckNoValue, APredicateOfRealsIsNotEqualByChance) {
  // Other numbers are compared in steps of five tokens only, with one element.
  const std::string before = "f = ReduceSum <keepdims = 0> (x) result = Less (f, half)";
  const std::string after =
      "e = Shape (p) five = Equal (e, l5) some = Cast <to = 1> (five) "
      "is5 = ReduceMax <keepdims = 0> (some) s = ReduceSum <keepdims = 0> (x) "
      "more = Mul (s, is5) f = Add (s, more) result = Less (f, half)";
  EXPECT_EQ(verdictOfNodes(before, after), Verdict::Different);
}

} // namespace
} // namespace kvopt::check
