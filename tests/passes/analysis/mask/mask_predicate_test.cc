// Facts about small masks, one spelling at a time.
#include "passes/analysis/mask/mask_predicate.h"
#include "support/format.h"

#include "ir/shapes/shape_inference.h"
#include "tests/ir/text/text_fixture.h"

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

/// Rows i + P as `i` [1,1,S,1] and keys as `j` [1,1,1,T], then the body, which defines `mask`.
std::string maskModel(const std::string& body, const std::string& type) {
  return formatted(R"(<ir_version: 10, opset_import: ["" : 18]>
masks (int64[B, S] ids, int64[B, total] padding, float[B, 2, P, 8] past_key, int64[S] positions,
       float[B, 1, S, T] given, uint8[T] bytes)
  => ({} mask)
<float[3, 4] learned = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
 bool[3, 3] odd = {{1, 0, 1, 1, 1, 0, 0, 1, 1}}>
{{
  p1 = Shape <start = 2, end = 3> (past_key)
  p = Squeeze (p1)
  s1 = Shape <start = 1, end = 2> (ids)
  s = Squeeze (s1)
  t = Add (p, s)
  zero = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  six = Constant <value = int64 {{6}}> ()
  before_j = Constant <value = int64[3] {{0, 1, 2}}> ()
  around_i = Constant <value = int64[3] {{0, 1, 3}}> ()
  inner = Constant <value = int64[2] {{1, 2}}> ()
  none = Constant <value = float {{0.0}}> ()
  low = Constant <value = float {{-3.4028235e+38}}> ()
  never = Constant <value = float {{-inf}}> ()
  rows = Range (zero, s, one)
  moved = Add (rows, p)
  keys = Range (zero, t, one)
  i = Unsqueeze (moved, around_i)
  j = Unsqueeze (keys, before_j)
  causal = LessOrEqual (j, i)
  seen = Cast <to = 9> (padding)
  pad = Unsqueeze (seen, inner)
{}
}}
)",
                   type, body);
}

IndexSpace maskSpace() {
  Dim rows = Dim::symbol("S");
  return {Dim::symbol("B"), Dim::fixed(4), rows, Dim::symbol("P") + rows};
}

struct MaskCase {
  const char* name;
  const char* body;
  const char* text;
  Proof causal;
  int64_t window = 0;
  MaskFacts::Remaining remaining = MaskFacts::Remaining::Nothing;
  const char* type = "bool";
};

constexpr auto nothing = MaskFacts::Remaining::Nothing;
constexpr auto padding = MaskFacts::Remaining::Padding;
constexpr auto other = MaskFacts::Remaining::Other;

/// Reads the model of a body and keeps it.
struct AnalysedMask {
  AnalysedMask(const std::string& body, const std::string& type)
      : model(readOrFail(maskModel(body, type))) {
    if (!model)
      return;
    if (llvm::Error error = inferShapes(model->graph()))
      ADD_FAILURE() << takeDiagnostic(std::move(error)).str();
    mask = model->graph().findValue("mask");
    facts = analysis.facts({mask, maskSpace(), false, 0});
  }

  std::unique_ptr<Model> model;
  MaskAnalysis analysis;
  Value* mask = nullptr;
  MaskFacts facts;
};

class MaskPredicateTest : public testing::TestWithParam<MaskCase> {};

TEST_P(MaskPredicateTest, Facts) {
  const MaskCase& expected = GetParam();
  AnalysedMask analysed(expected.body, expected.type);
  EXPECT_EQ(analysed.facts.text, expected.text);
  EXPECT_EQ(proofName(analysed.facts.causal), proofName(expected.causal));
  EXPECT_EQ(analysed.facts.window, expected.window);
  EXPECT_EQ(static_cast<int>(analysed.facts.remaining), static_cast<int>(expected.remaining));
}

const MaskCase cases[] = {
    {"Causal", "  mask = Identity (causal)", "j <= i + P", Proof::Proved},
    {"LessForLessOrEqual", "  mask = Less (j, i)", "P + i - j - 1 >= 0", Proof::Refuted, 0, other},
    {"Swapped", "  mask = LessOrEqual (i, j)", "i + P - j < 1", Proof::Refuted, 1},
    {"TopLeft", "  top = Unsqueeze (rows, around_i)\n  mask = LessOrEqual (j, top)", "i - j >= 0",
     Proof::Refuted, 0, other},
    {"OneTooFar", "  far = Add (i, one)\n  mask = LessOrEqual (j, far)", "P + i - j + 1 >= 0",
     Proof::Refuted, 0, other},
    {"RowsOfAnInput", "  row = Unsqueeze (positions, around_i)\n  mask = LessOrEqual (j, row)",
     "(j <= positions[i])", Proof::Unproven, 0, other},
    {"Window", "  first = Sub (i, six)\n  near = Greater (j, first)\n  mask = And (causal, near)",
     "j <= i + P and i + P - j < 6", Proof::Proved, 6},
    {"WindowOneLonger",
     "  first = Sub (i, six)\n  near = GreaterOrEqual (j, first)\n  mask = And (causal, near)",
     "j <= i + P and i + P - j < 7", Proof::Proved, 7},
    {"WindowOfTopLeftRows",
     "  top = Unsqueeze (rows, around_i)\n  first = Sub (top, six)\n"
     "  near = Greater (j, first)\n  mask = And (causal, near)",
     "j <= i + P and -i + j + 5 >= 0", Proof::Refuted, 0, other},
    {"BothSides", "  d = Sub (i, j)\n  far = Abs (d)\n  mask = Less (far, six)",
     "i + P - j < 6 and P + i - j + 5 >= 0", Proof::Refuted, 6, other},
    {"Padding", "  mask = And (causal, pad)", "j <= i + P and padding[b, j]", Proof::Proved, 0,
     padding},
    {"PaddingAlone", "  mask = Identity (pad)", "padding[b, j]", Proof::Refuted, 0, padding},
    {"PaddingOfRows",
     "  row = Cast <to = 9> (ids)\n  ends = Constant <value = int64[2] {1, 3}> ()\n"
     "  byRow = Unsqueeze (row, ends)\n  mask = And (causal, byRow)",
     "j <= i + P and ids[b, i]", Proof::Unproven, 0, other},
    {"Prefix", "  mask = Or (causal, pad)", "(P + i - j >= 0 or padding[b, j])", Proof::Unproven, 0,
     other},
    {"Everything", "  every = GreaterOrEqual (j, i)\n  mask = Or (causal, every)", "all keys",
     Proof::Refuted},
    {"Given", "  mask = Identity (given)", "all keys; plus a bias of given[b, 0, i, j]",
     Proof::Unproven, 0, other, "float"},
    {"Additive", "  mask = Where (causal, none, low)", "j <= i + P", Proof::Proved, 0, nothing,
     "float"},
    {"ScaledPadding",
     "  f = Cast <to = 1> (padding)\n  u = Constant <value = float {1.0}> ()\n"
     "  h = Sub (u, f)\n  m = Mul (h, low)\n  wide = Unsqueeze (m, inner)\n"
     "  c = Where (causal, none, low)\n  mask = Add (c, wide)",
     "j <= i + P and (-3.40282e+38*(1 + (padding[b, j]*-1)))", Proof::Proved, 0, padding, "float"},
    {"ScaledPaddingOfTruth",
     "  f = Cast <to = 1> (pad)\n  u = Constant <value = float {1.0}> ()\n"
     "  h = Sub (u, f)\n  m = Mul (h, low)\n  c = Where (causal, none, low)\n  mask = Add (c, m)",
     "j <= i + P and padding[b, j]", Proof::Proved, 0, padding, "float"},
    {"BiasByDistance",
     "  d = Sub (j, i)\n  far = Neg (d)\n  two = Constant <value = int64 {2}> ()\n"
     "  b1 = Max (far, zero)\n  b2 = Min (b1, two)\n  b4 = Gather <axis = 0> (learned, b2)\n"
     "  off = Constant <value = int64[1] {0}> ()\n  b3 = Squeeze (b4, off)\n"
     "  b5 = Squeeze (b3, off)\n  b6 = Transpose <perm = [2, 0, 1]> (b5)\n"
     "  b7 = Unsqueeze (b6, off)\n  c = Where (causal, none, never)\n  mask = Add (b7, c)",
     "j <= i + P; plus a bias by distance", Proof::Proved, 0, other, "float"},
    {"BiasOfKeys",
     "  f = Cast <to = 1> (j)\n  slope = Constant <value = float {0.5}> ()\n"
     "  b = Mul (f, slope)\n  c = Where (causal, none, never)\n  mask = Add (b, c)",
     "j <= i + P; plus a bias of (j*0.5)", Proof::Proved, 0, other, "float"},
    {"FunctionOfKeys",
     "  f = Cast <to = 1> (j)\n  b = Softsign (f)\n  c = Where (causal, none, never)\n"
     "  mask = Add (b, c)",
     "j <= i + P; plus a bias of Softsign(j, 1)", Proof::Proved, 0, other, "float"},
    {"FunctionWithAnAttribute",
     "  f = Cast <to = 1> (j)\n  b = LeakyRelu <alpha = 0.5> (f)\n"
     "  c = Where (causal, none, never)\n  mask = Add (b, c)",
     "j <= i + P; plus a bias of b[0, 0, 0, j]", Proof::Proved, 0, other, "float"},
    {"LargeNumbersCancel",
     "  big = Neg (low)\n  c = Where (causal, none, low)\n  d = Where (pad, none, big)\n"
     "  mask = Add (c, d)",
     "j <= i + P; plus a bias of 3.40282e+38", Proof::Unproven, 0, other, "float"},
    {"SquareExpandedToTheKeys",
     "  key0 = Constant <value = int64[1] {0}> ()\n  one1 = Constant <value = int64[1] {1}> ()\n"
     "  column = Unsqueeze (rows, key0)\n  after = Add (rows, one)\n"
     "  down = Unsqueeze (after, one1)\n  square = Less (column, down)\n"
     "  both = Constant <value = int64[2] {0, 1}> ()\n  t1 = Unsqueeze (t, key0)\n"
     "  shape = Concat <axis = 0> (one1, one1, s1, t1)\n  wide = Unsqueeze (square, both)\n"
     "  mask = Expand (wide, shape)",
     "j <= i + P", Proof::Proved},
    {"OddTable",
     "  three = Constant <value = int64 {3}> ()\n  x = Mod (i, three)\n  y = Mod (j, three)\n"
     "  r = Gather <axis = 0> (odd, x)\n  mask = And (causal, causal)",
     "j <= i + P", Proof::Proved},
    {"HalfPrecisionPositions",
     "  x = Cast <to = 10> (i)\n  y = Cast <to = 10> (j)\n  mask = LessOrEqual (y, x)",
     "(j <= P + i)", Proof::Unproven, 0, other},
    {"Bytes",
     "  x = Unsqueeze (bytes, before_j)\n  y = Cast <to = 7> (x)\n  mask = LessOrEqual (y, i)",
     "(Cast(bytes[j], 7) <= P + i)", Proof::Unproven, 0, other},
};

INSTANTIATE_TEST_SUITE_P(Spellings, MaskPredicateTest, testing::ValuesIn(cases),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(MaskFactsTest, PositionsThatAreFedAreACondition) {
  const std::string row = "  row = Unsqueeze (positions, around_i)\n";
  AnalysedMask fed(row + "  mask = LessOrEqual (j, row)", "bool");
  ASSERT_TRUE(fed.facts.causalIf);
  EXPECT_EQ(fed.facts.causalIf->positions->name(), "positions");
  EXPECT_EQ(fed.facts.causalIf->text, "positions[i] = P + i");
  EXPECT_EQ(fed.facts.causalIf->window, 0);
  // Nothing is said of executions in which other positions are fed.
  EXPECT_EQ(fed.facts.causal, Proof::Unproven);
  EXPECT_FALSE(fed.facts.hidesLaterKeys);
  AnalysedMask window(row + "  first = Sub (row, six)\n  near = Greater (j, first)\n"
                            "  before = LessOrEqual (j, row)\n  mask = And (before, near)",
                      "bool");
  ASSERT_TRUE(window.facts.causalIf);
  EXPECT_EQ(window.facts.causalIf->window, 6);
  EXPECT_EQ(window.facts.window, 0);
  for (const char* body : {"  mask = Less (j, row)", "  mask = LessOrEqual (row, j)",
                           "  far = Add (row, one)\n  mask = LessOrEqual (j, far)"})
    EXPECT_FALSE(AnalysedMask(row + body, "bool").facts.causalIf) << body;
}

TEST(MaskFactsTest, PackedSequencesThatCountUpAreOne) {
  // Rows belong together while positions rise by one.
  auto packed = [](const std::string& positions) {
    return "  axis0 = Constant <value = int64[1] {0}> ()\n"
           "  axis = Constant <value = int64 {0}> ()\n"
           "  first = Slice (" +
           positions +
           ", axis0, one1, axis0)\n"
           "  before = Sub (first, one)\n"
           "  padded = Concat <axis = 0> (before, " +
           positions +
           ")\n"
           "  s1p = Add (s1, one1)\n"
           "  up = Slice (padded, one1, s1p, axis0)\n"
           "  down = Slice (padded, axis0, s1, axis0)\n"
           "  rise = Sub (up, down)\n  steady = Equal (rise, one)\n  jump = Not (steady)\n"
           "  jumps = Cast <to = 7> (jump)\n  group = CumSum (jumps, axis)\n"
           "  row_group = Unsqueeze (group, around_i)\n"
           "  key_group = Unsqueeze (group, before_j)\n"
           "  same = Equal (row_group, key_group)\n"
           "  top = Unsqueeze (rows, around_i)\n  column = Unsqueeze (rows, before_j)\n"
           "  lower = LessOrEqual (column, top)\n  mask = And (lower, same)";
  };
  const std::string one1 = "  one1 = Constant <value = int64[1] {1}> ()\n";
  auto factsOf = [](AnalysedMask& analysed) {
    Dim rows = Dim::symbol("S");
    return analysed.analysis.facts(
        {analysed.mask, IndexSpace(Dim::symbol("B"), Dim::fixed(4), rows, rows), false, 0});
  };
  AnalysedMask counted(one1 + packed("rows"), "bool");
  EXPECT_EQ(factsOf(counted).causal, Proof::Proved) << factsOf(counted).text;
  AnalysedMask fed(one1 + packed("positions"), "bool");
  MaskFacts facts = factsOf(fed);
  EXPECT_EQ(facts.causal, Proof::Unproven);
  ASSERT_TRUE(facts.causalIf) << facts.text;
  EXPECT_EQ(facts.causalIf->text, "positions[i] = i"); // without a past
}

constexpr const char* assigned = R"(
  b1 = Shape <start = 0, end = 1> (ids)
  one1 = Constant <value = int64[1] {1}> ()
  zero1 = Constant <value = int64[1] {0}> ()
  three1 = Constant <value = int64[1] {3}> ()
  t1 = Unsqueeze (t, zero1)
  shape = Concat <axis = 0> (b1, one1, s1, t1)
  small = Where (causal, none, low)
  c = Expand (small, shape)
  front = Slice (c, START, LENGTH, three1, one1)
  small_pad = Where (pad, none, low)
  wide_pad = Expand (small_pad, shape)
  given_pad = Slice (wide_pad, START, LENGTH, three1, one1)
  sum = Add (front, given_pad)
  hidden = Less (sum, none)
  update = Where (hidden, low, front)
  all = Range (zero, t, one)
  entries = Slice (all, START, LENGTH, zero1, one1)
  column = Unsqueeze (entries, one1)
  ct = Transpose <perm = [3, 1, 2, 0]> (c)
  ut = Transpose <perm = [3, 1, 2, 0]> (update)
  st = ScatterND (ct, column, ut)
  mask = Transpose <perm = [3, 1, 2, 0]> (st)
)";

/// A slice of the mask's columns assigned as `causal_mask[..., :length] = ...` is exported.
std::string assignedMask(std::string start, std::string length) {
  std::string body = assigned;
  for (auto [name, value] :
       {std::pair<std::string, std::string>{"START", start}, {"LENGTH", length}})
    for (size_t at = body.find(name); at != std::string::npos; at = body.find(name))
      body.replace(at, name.size(), value);
  return body;
}

TEST(MaskFactsTest, AssignedColumnsAreRead) {
  AnalysedMask whole(assignedMask("zero1", "t1"), "float");
  EXPECT_EQ(whole.facts.text, "j <= i + P and padding[b, j]");
  EXPECT_EQ(whole.facts.causal, Proof::Proved);
  EXPECT_EQ(whole.facts.remaining, padding);
  // Only the first columns are padded, or all but the first.
  AnalysedMask front(assignedMask("zero1", "s1"), "float");
  EXPECT_EQ(front.facts.text, "(P + i - j >= 0 and padding[b, j] or -S + j >= 0) and "
                              "(P + i - j >= 0 or S - j - 1 >= 0)");
  AnalysedMask rest(assignedMask("one1", "t1"), "float");
  EXPECT_EQ(rest.facts.text, "(P + i - j >= 0 and padding[b, j] or -j >= 0)");
  // Where the length is that of another input, it may be longer than the mask.
  AnalysedMask open("  n1 = Shape <start = 1, end = 2> (padding)\n" + assignedMask("zero1", "n1"),
                    "float");
  EXPECT_EQ(open.facts.causal, Proof::Unproven);
}

TEST(MaskFactsTest, ConstantsReachAComparison) {
  const std::string window = "  d = Sub (x, y)\n  near = Less (d, w)\n  mask = And (causal, near)";
  const std::string indices = "  x = Identity (i)\n  y = Identity (j)\n";
  for (const std::string& body :
       {indices + "  w = CastLike (six, j)\n",
        indices + "  w6 = Constant <value = int32[1, 1] {6}> ()\n  w = CastLike (w6, i)\n",
        indices + "  one1 = Constant <value = int64[1] {1}> ()\n  w1 = Reshape (six, one1)\n"
                  "  w = CastLike (w1, i)\n",
        indices + "  one1 = Constant <value = int64[1] {1}> ()\n  seven = Add (six, one)\n"
                  "  r = Range (six, seven, one)\n  w = Reshape (r, one1)\n",
        std::string("  y = Cast <to = 1> (j)\n  x = CastLike (i, y)\n"
                    "  w = Constant <value = float {6.0}> ()\n"),
        std::string("  f0 = CastLike (zero, none)\n  f1 = CastLike (one, none)\n"
                    "  ft = CastLike (t, none)\n  r = Range (f0, ft, f1)\n"
                    "  y = Unsqueeze (r, before_j)\n  x = CastLike (i, y)\n"
                    "  w = CastLike (six, y)\n")}) {
    AnalysedMask mask(body + window, "bool");
    EXPECT_EQ(mask.facts.window, 6) << body;
    EXPECT_EQ(mask.facts.text, "j <= i + P and i + P - j < 6") << body;
  }
  // float16 does not hold every position.
  AnalysedMask half("  h = Constant <value = float16 {0.0}> ()\n  y = CastLike (j, h)\n"
                    "  x = CastLike (i, h)\n  w = CastLike (six, h)\n" +
                        window,
                    "bool");
  EXPECT_EQ(half.facts.window, 0);
}

TEST(MaskFactsTest, CounterExamplesNameASize) {
  AnalysedMask less("  mask = Less (j, i)", "bool");
  EXPECT_EQ(less.facts.counterExample, "row 0 does not see key 0 of S = 1, T = 1");
  AnalysedMask far("  far = Add (i, one)\n  mask = LessOrEqual (j, far)", "bool");
  EXPECT_EQ(far.facts.counterExample, "row 0 sees key 1 of S = 2, T = 2");
}

TEST(MaskFactsTest, HiddenValues) {
  AnalysedMask boolean("  mask = Identity (causal)", "bool");
  EXPECT_TRUE(boolean.facts.isExact);
  EXPECT_TRUE(boolean.facts.everyRowSeesAKey);
  AnalysedMask infinite("  mask = Where (causal, none, never)", "float");
  EXPECT_TRUE(infinite.facts.isExact);
  AnalysedMask finite("  mask = Where (causal, none, low)", "float");
  EXPECT_FALSE(finite.facts.isExact);
  EXPECT_LT(finite.facts.hiddenValue, -3e38);
  EXPECT_TRUE(finite.facts.everyRowSeesAKey);
  AnalysedMask clamped("  m = Where (causal, none, never)\n  mask = Max (m, low)", "float");
  EXPECT_FALSE(clamped.facts.isExact);
  EXPECT_EQ(clamped.facts.causal, Proof::Proved);
  AnalysedMask padded("  a = And (causal, pad)\n  mask = Where (a, none, low)", "float");
  EXPECT_FALSE(padded.facts.everyRowSeesAKey);
  AnalysedMask two("  m = Constant <value = float {-10000.0}> ()\n"
                   "  a = Where (causal, none, low)\n  b = Where (pad, none, m)\n"
                   "  mask = Add (a, b)",
                   "float");
  EXPECT_EQ(two.facts.hiddenValue, -10000.0);
}

TEST(MaskFactsTest, PaddingNamesItsInput) {
  AnalysedMask padded("  mask = And (causal, pad)", "bool");
  ASSERT_EQ(padded.facts.padding.size(), 1u);
  ASSERT_EQ(padded.facts.padding[0].dependsOn.size(), 1u);
  EXPECT_EQ(padded.facts.padding[0].dependsOn[0]->name(), "padding");
}

TEST(MaskFactsTest, PrefixesAreSeenAsBlocks) {
  AnalysedMask prefix("  mask = Or (causal, pad)", "bool");
  EXPECT_TRUE(prefix.facts.hasBidirectionalBlocks);
  EXPECT_FALSE(prefix.facts.hidesLaterKeys);
  AnalysedMask rows("  row = Cast <to = 9> (ids)\n"
                    "  ends = Constant <value = int64[2] {1, 3}> ()\n"
                    "  byRow = Unsqueeze (row, ends)\n  mask = And (causal, byRow)",
                    "bool");
  EXPECT_FALSE(rows.facts.hasBidirectionalBlocks);
  EXPECT_TRUE(rows.facts.hidesLaterKeys);
  EXPECT_FALSE(rows.facts.seesOwnKey);
}

TEST(MaskFactsTest, RowsSeeTheirOwnKeyOrOnlyEarlierOnes) {
  AnalysedMask padded("  mask = And (causal, pad)", "bool");
  EXPECT_TRUE(padded.facts.seesOwnKey);
  AnalysedMask strict("  mask = Less (j, i)", "bool");
  EXPECT_TRUE(strict.facts.hidesLaterKeys);
  EXPECT_FALSE(strict.facts.seesOwnKey);
  AnalysedMask far("  first = Add (j, six)\n  a = LessOrEqual (first, i)\n  b = Equal (j, six)\n"
                   "  c = Or (a, b)\n  mask = And (c, causal)",
                   "bool");
  EXPECT_TRUE(far.facts.hidesLaterKeys);
  EXPECT_FALSE(far.facts.seesOwnKey);
  AnalysedMask near("  first = Sub (i, six)\n  a = Greater (j, first)\n  b = Less (j, six)\n"
                    "  c = Or (a, b)\n  mask = And (c, causal)",
                    "bool");
  EXPECT_NE(near.facts.causal, Proof::Proved);
  EXPECT_TRUE(near.facts.hidesLaterKeys);
  EXPECT_TRUE(near.facts.seesOwnKey);
}

TEST(MaskFactsTest, AttributesAndOperandCombine) {
  AnalysedMask padded("  mask = Identity (pad)", "bool");
  MaskFacts facts = padded.analysis.facts({padded.mask, maskSpace(), true, 4});
  EXPECT_EQ(facts.text, "j <= i + P and i + P - j < 4 and padding[b, j]");
  EXPECT_EQ(facts.causal, Proof::Proved);
  EXPECT_EQ(facts.window, 4);
  // The shorter window wins.
  AnalysedMask window("  first = Sub (i, six)\n  mask = Greater (j, first)", "bool");
  EXPECT_EQ(window.analysis.facts({window.mask, maskSpace(), true, 9}).window, 6);
  EXPECT_EQ(window.analysis.facts({window.mask, maskSpace(), true, 3}).window, 3);
}

TEST(MaskFactsTest, AttributesAloneSuffice) {
  MaskAnalysis analysis;
  MaskFacts facts = analysis.facts({nullptr, maskSpace(), true, 0});
  EXPECT_EQ(facts.causal, Proof::Proved);
  EXPECT_TRUE(facts.everyRowSeesAKey);
  facts = analysis.facts({nullptr, IndexSpace({}, {}, {}, {}), true, 8});
  EXPECT_EQ(facts.causal, Proof::Proved);
  EXPECT_EQ(facts.window, 8);
  facts = analysis.facts({nullptr, maskSpace(), false, 0});
  EXPECT_EQ(facts.causal, Proof::Refuted);
  EXPECT_EQ(facts.text, "all keys");
}

TEST(MaskFactsTest, RowsBeforeEveryKeyMayBeEmpty) {
  // Nothing says that there are as many keys as rows.
  MaskAnalysis analysis;
  IndexSpace free(Dim::symbol("B"), Dim::fixed(1), Dim::symbol("S"), Dim::symbol("T"));
  EXPECT_FALSE(analysis.facts({nullptr, free, true, 0}).everyRowSeesAKey);
}

TEST(MaskFactsTest, OneRowSeesEveryKey) {
  IndexSpace step(Dim::fixed(1), Dim::fixed(1), Dim::fixed(1), Dim::symbol("P") + Dim::fixed(1));
  MaskAnalysis analysis;
  MaskFacts facts = analysis.facts({nullptr, step, false, 0});
  EXPECT_EQ(facts.causal, Proof::Proved);
  EXPECT_TRUE(facts.everyRowSeesAKey);
}

TEST(MaskFactsTest, LongChainsAreBounded) {
  std::string body = "  m0 = Identity (causal)\n";
  for (int k = 1; k <= 3000; ++k)
    body += formatted("  m{} = {} (m{}, {})\n", k, k % 2 ? "And" : "Or", k - 1,
                      k % 3 ? "pad" : "causal");
  body += "  mask = And (m3000, causal)";
  AnalysedMask deep(body, "bool");
  EXPECT_NE(deep.facts.text, "");
  EXPECT_NE(deep.facts.causal, Proof::Proved);
}

TEST(MaskFactsTest, ReservedNamesAreNotTrusted) {
  // A model may call an extent what the analysis calls an index.
  const Dim row = IndexSpace::variable(IndexVariable::Row);
  IndexSpace space(Dim::symbol("B"), Dim::fixed(1), row, row);
  EXPECT_TRUE(space.past().isUnknown());
}

} // namespace
} // namespace kvopt
