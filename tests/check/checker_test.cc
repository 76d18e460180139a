// Which pairs of models are proved equal, and which differences are found.
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

TEST(Checker, TheSameModelIsProvedByConstruction) {
  const CheckReport report = check(grown, grown);
  EXPECT_EQ(report.verdict(), Verdict::Proved);
  EXPECT_EQ(report.nodesAligned, report.nodesAfter);
  EXPECT_EQ(report.obligations.size(), 3u);
}

TEST(Checker, AnotherSpellingIsProved) {
  const CheckReport report = check(grown, respelled);
  EXPECT_EQ(report.verdict(), Verdict::ProvedReduced);
  for (const Obligation& obligation : report.obligations)
    EXPECT_EQ(obligation.after == "attended", obligation.verdict == Verdict::ProvedReduced);
}

TEST(Checker, NamesAndOrderOfOperandsDoNotMatter) {
  const std::string other = edited(edited(grown, "Mul (product, scale)", "Mul (scale, product)"),
                                   "weights = Softmax <axis = -1> (scores)",
                                   "copy = Identity (scores) weights = Softmax <axis = -1> (copy)");
  EXPECT_EQ(check(grown, other).verdict(), Verdict::Proved);
}

TEST(Checker, LaterVersionsThatOnlyTakeMoreTypesAreTheSame) {
  const char* version = R"("" : 17)";
  EXPECT_EQ(check(grown, edited(grown, version, R"("" : 23)")).verdict(), Verdict::Proved);
  // Before version 13, a softmax was over all axes from the first one on.
  const std::string earlier =
      edited(edited(edited(grown, version, R"("" : 12)"), "<int64[1] one = {1}, ", "<"),
             "Unsqueeze (inputs_embeds, one)", "Unsqueeze <axes = [1]> (inputs_embeds)");
  const CheckReport report = check(edited(earlier, "<axis = -1>", "<axis = 3>"),
                                   edited(grown, "<axis = -1>", "<axis = 3>"));
  EXPECT_EQ(report.verdict(), Verdict::ProvedReduced) << report.obligations.back().reason;
}

struct Change {
  const char* from;
  const char* to;
};

TEST(Checker, FindsDifferencesInARespelledModel) {
  for (const Change& change : {
           Change{"float half = {0.5}", "float half = {0.51}"},
           Change{"attended = Div (sums, total)", "attended = Mul (sums, total)"},
           Change{"sums = MatMul (powers, present_value)", "sums = MatMul (powers, present_key)"},
           Change{"below = Sub (logits, top)", "below = Add (logits, logits)"},
           Change{"present_key = Concat <axis = 2> (past_key, new_rows)",
                  "present_key = Concat <axis = 2> (new_rows, past_key)"},
           Change{"present_value = Concat <axis = 2> (past_value, new_rows)",
                  "present_value = Concat <axis = 2> (past_key, new_rows)"},
           Change{"query = Mul (half, new_rows)",
                  "twice = Add (new_rows, new_rows) query = Mul (half, twice)"},
       }) {
    const CheckReport report = check(grown, edited(respelled, change.from, change.to));
    EXPECT_EQ(report.verdict(), Verdict::Different) << change.to;
    bool hasExample = false;
    for (const Obligation& obligation : report.obligations)
      if (obligation.verdict == Verdict::Different)
        hasExample |= !obligation.reason.empty() && !obligation.node.empty();
    EXPECT_TRUE(hasExample) << change.to;
  }
}

TEST(Checker, DivisionsByConstantsAreQuotients) {
  auto divided = [](const std::string& divisor) {
    return edited(edited(grown, "float scale = {0.5}", "float divisor = {" + divisor + "}"),
                  "Mul (product, scale)", "Div (product, divisor)");
  };
  EXPECT_EQ(check(grown, divided("2")).verdict(), Verdict::ProvedReduced);
  EXPECT_EQ(check(grown, divided("0.5")).verdict(), Verdict::Different);
}

/// `grown`, or `respelled`, whose keys a mask hides that `nodes` compute.
std::string masked(const char* model, const std::string& nodes) {
  const bool isFirst = model == grown;
  const std::string scores = isFirst ? "scores" : "logits", reader = isFirst ? "weights" : "top";
  const std::string input = "float[B, S, 8] inputs_embeds";
  const std::string constants = isFirst ? "<int64[1] one = {1}, " : "<int64[1] axis = {1}, ";
  return edited(
      edited(edited(edited(model, input, input + ", int64[B, T] attention_mask"), constants,
                    constants + "int64[2] inner = {1, 2}, int64[1] rest = {-1}, int64 n0 = {0}, "
                                "int64 n1 = {1}, float f0 = {0}, float hidden = {-inf}, "
                                "int64[1] first_axis = {0}, int64[1] keys_axis = {1}, "),
             scores + " = ", "all_" + scores + " = "),
      reader + " = ",
      nodes +
          " mask = Cast <to = 9> (shown) column = Unsqueeze (mask, inner) "
          "bias = Where (column, f0, hidden) " +
          scores + " = Add (all_" + scores + ", bias) " + reader + " = ");
}

TEST(Checker, PaddedRowsAreFedOnEitherSide) {
  const std::string first = masked(grown, "shown = Identity (attention_mask)");
  auto verdictOf = [&](const std::string& nodes) {
    return check(first, masked(respelled, nodes)).verdict();
  };
  EXPECT_EQ(verdictOf("twice = Add (attention_mask, attention_mask) shown = Sub (twice, "
                      "attention_mask)"),
            Verdict::ProvedReduced);
  // All keys, and those of the first row.
  EXPECT_EQ(verdictOf("shown = Max (attention_mask, n1)"), Verdict::Different);
  EXPECT_EQ(
      verdictOf(
          "extents = Shape (attention_mask) ones = Expand (n1, extents) row = Gather <axis = 0> "
          "(attention_mask, n0) first = Unsqueeze (row, "
          "first_axis) shown = Mul (first, ones)"),
      Verdict::Different);
  // Padding on the left hides the first key, and padding on the right the last one.
  for (const char* always : {"place = Sub (length, length)", "place = Sub (length, n1)"})
    EXPECT_EQ(verdictOf("extents = Shape (attention_mask) length = Gather (extents, n1) " +
                        std::string(always) +
                        " keys = Range (n0, length, n1) isIt = Equal (keys, place) "
                        "always = Cast <to = 7> (isIt) shown = Max (attention_mask, always)"),
              Verdict::Different)
        << always;
}

TEST(Checker, FindsDifferencesOfOnlySomeSizes) {
  // Only from the third batch row on.
  const std::string thirdRow = edited(edited(grown, "int64[1] one = {1}",
                                             "int64[1] one = {1}, int64[1] zero = {0}, "
                                             "int64 two = {2}, int64[1] ends = {9}, "
                                             "int64[1] third = {2}"),
                                      "attended = MatMul (weights, present_value)",
                                      R"(sum = MatMul (weights, present_value)
  head = Slice (sum, zero, third, zero)
  tail = Slice (sum, third, ends, zero)
  double = Add (tail, tail)
  attended = Concat <axis = 0> (head, double))");
  EXPECT_EQ(check(grown, thirdRow).verdict(), Verdict::Different);
}

TEST(Checker, ShapesOfTheManifestAreThoseOfTheInputs) {
  auto first = read(grown), second = read(respelled);
  ASSERT_TRUE(first && second);
  const ir::Manifest manifest = growing();
  for (const size_t axis : {size_t(0), size_t(1), size_t(3)}) {
    ir::Manifest other = manifest;
    other.caches[0].shape[axis] = int64_t(2); // of [B, 1, P, 8]
    const CheckReport report = checkModels({*first, manifest}, {*second, other});
    EXPECT_EQ(report.verdict(), Verdict::Skipped) << axis;
    EXPECT_NE(weakest(report).find("another shape"), std::string::npos) << weakest(report);
  }
}

TEST(Checker, OtherFilesAreNotDecided) {
  auto first = read(grown), second = read(respelled);
  ASSERT_TRUE(first && second);
  const ir::Manifest manifest = growing();
  ir::Manifest several = manifest;
  several.variants.emplace_back();
  const CheckReport variants = checkModels({*first, manifest}, {*second, several});
  EXPECT_EQ(variants.verdict(), Verdict::Skipped);
  EXPECT_GT(variants.count(Verdict::ProvedReduced), 0U);
  ir::Manifest separate = manifest;
  separate.firstStep = "first.onnx";
  EXPECT_EQ(checkModels({*first, manifest}, {*second, separate}).verdict(), Verdict::Skipped);
}

TEST(Checker, BeyondTheLimitOfWorkNothingIsDecided) {
  auto first = read(grown), second = read(respelled);
  ASSERT_TRUE(first && second);
  const ir::Manifest manifest = growing();
  const CheckReport report =
      checkModels({*first, manifest}, {*second, manifest}, /*seed=*/0, /*mostWork=*/6000);
  EXPECT_EQ(report.verdict(), Verdict::Skipped);
  EXPECT_NE(weakest(report).find("more than 18000 products"), std::string::npos) << weakest(report);
  EXPECT_EQ(checkModels({*first, manifest}, {*second, manifest}).verdict(), Verdict::ProvedReduced);
}

TEST(Checker, TheLimitOfWorkIsThatOfARegion) {
  const std::string text = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 64] wide, float[B, S, 1] thin) => (float[B, S, 64] first, float[B, S, 1] second)
<float two = {2}>
{
  first = Mul (wide, two)
  second = Mul (thin, two)
}
)";
  auto before = read(text);
  auto after = read(edited(edited(text, "Mul (wide, two)", "Add (wide, wide)"), "Mul (thin, two)",
                           "Add (thin, thin)"));
  ASSERT_TRUE(before && after);
  const CheckReport report = checkModels({*before, {}}, {*after, {}}, /*seed=*/0,
                                         /*mostWork=*/600000);
  ASSERT_EQ(report.count(Verdict::Skipped), 1U);
  for (const Obligation& part : report.obligations)
    EXPECT_EQ(part.verdict, part.after == "first" ? Verdict::Skipped : Verdict::ProvedReduced)
        << part.after << ": " << part.reason;
}

TEST(Checker, AResultThatNoOutputReadsIsEvaluated) {
  const std::string text = R"(<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[B, S, 8] x) => (float[B, S, 8] y) { y, rest = own.Parts (x) }
<domain: "own", opset_import: ["" : 17]>
Parts (x) => (a, b)
{
  shape = Constant <value = int64[1] {7}> ()
  once = Neg (x)
  a = Neg (once)
  b = Reshape (x, shape)
}
)";
  auto verdictOf = [&](const std::string& second) {
    auto before = read("<ir_version: 8, opset_import: [\"\" : 17]> g (float[B, S, 8] x) => "
                       "(float[B, S, 8] y) { y = Identity (x) }");
    auto after = read(second);
    return before && after ? checkModels({*before, {}}, {*after, {}}).verdict() : Verdict::Skipped;
  };
  EXPECT_EQ(verdictOf(text), Verdict::Different);
  EXPECT_EQ(verdictOf(edited(text, "own.Parts (x) }", "own.Parts (x) z = Neg (rest) }")),
            Verdict::Different);
  EXPECT_EQ(verdictOf(edited(text, "y, rest = own", "y = own")), Verdict::ProvedReduced);
}

TEST(Checker, OperandsOfAProductAreComparedRatherThanTheProduct) {
  std::string weight = "float[8, 64] weight = {1";
  for (int i = 1; i < 512; ++i)
    weight += ", 1";
  // The operands have different names, and the products have one.
  auto text = [&](const std::string& operand) {
    std::string model = edited(grown, "<int64[1] one = {1}, ",
                               "<int64[1] one = {1}, " + weight + "}, float two = {2}, ");
    model = edited(model, "attended, float", "attended, float[B, S, 64] wide, float");
    return edited(model, "rows = ",
                  operand + " product_of_rows = MatMul (twice_" + operand.substr(6, 1) +
                      ", weight) wide = Neg (product_of_rows) rows = ");
  };
  const CheckReport report = check(text("twice_a = Add (inputs_embeds, inputs_embeds)"),
                                   text("twice_b = Mul (inputs_embeds, two)"));
  EXPECT_EQ(report.verdict(), Verdict::ProvedReduced) << weakest(report);
  std::vector<std::string> compared;
  for (const Obligation& part : report.obligations)
    if (!part.isOutput)
      compared.push_back(part.after);
  EXPECT_EQ(compared, std::vector<std::string>{"twice_b"});
}

TEST(Checker, ABoundBeneathTheFillsOfMasksKeepsNumbers) {
  // Scores that other scores bound, which are half of them plus a fill.
  auto bounded = [](const std::string& fill, const std::string& function) {
    return edited(
        edited(respelled, "float half = {0.5}", "float half = {0.5}, float fill = {" + fill + "}"),
        "logits = MatMul (query, columns)",
        "products = MatMul (query, columns) halves = Mul (products, half) low = Add "
        "(halves, fill) logits = " +
            function + " (products, low)");
  };
  EXPECT_EQ(check(grown, bounded("-8.5e37", "Max")).verdict(), Verdict::ProvedReduced);
  EXPECT_EQ(check(grown, bounded("-100", "Max")).verdict(), Verdict::Different);
  EXPECT_EQ(check(grown, bounded("-8.5e37", "Min")).verdict(), Verdict::Different);
}

TEST(Checker, InfiniteElementsOfSharedWeightsAreKept) {
  // The difference of a table and itself is zero for finite numbers only.
  auto verdictWith = [](const std::string& number) {
    std::string table = "float[64, 8] table = {" + number;
    for (int i = 1; i < 512; ++i)
      table += ", 1";
    const std::string rows = "kept = Slice (table, row, next, row) ";
    const std::string constants = table + "}, int64[1] row = {0}, int64[1] next = {1}, float ";
    const std::string first = edited(grown, "float scale", constants + "scale");
    const std::string second = edited(respelled, "float half", constants + "half");
    const char* ofFirst = "attended = MatMul (weights, present_value)";
    const char* ofSecond = "attended = Div (sums, total)";
    return check(edited(first, ofFirst, rows + ofFirst),
                 edited(second, ofSecond,
                        rows + "none = Sub (kept, kept) sum = Div (sums, total) attended = Add "
                               "(sum, none)"))
        .verdict();
  };
  EXPECT_EQ(verdictWith("2"), Verdict::ProvedReduced);
  EXPECT_NE(verdictWith("-inf"), Verdict::ProvedReduced);
}

TEST(Checker, AnOutputThatIsGoneIsADifference) {
  const std::string fewer = edited(grown, ", float[B, 1, T, 8] present_value)\n", ")\n");
  EXPECT_EQ(check(grown, fewer).verdict(), Verdict::Different);
}

TEST(Checker, InputsWithoutAKnownRoleAreNotProved) {
  const std::string input = "float[B, S, 8] inputs_embeds";
  const std::string first =
      edited(edited(grown, input, input + ", int64[1] kind"), "present_key = Concat",
             "seen = Shape (kind) present_key = Concat");
  const std::string second = edited(
      edited(edited(respelled, input, input + ", int64[1] kind"), "int64[1] last = {3}",
             "int64[1] last = {3}, float whole = {1}, float twice = {2}, int64[1] seven = {7}"),
      "attended = Div (sums, total)",
      "is_seven = Equal (kind, seven) factor = Where (is_seven, twice, whole) "
      "quotient = Div (sums, total) attended = Mul (quotient, factor)");
  const CheckReport report = check(first, second);
  EXPECT_EQ(report.verdict(), Verdict::Tested);
  EXPECT_NE(weakest(report).find("the role of the input 'kind' is unknown"), std::string::npos)
      << weakest(report);
}

TEST(Checker, MasksOfEncodersThatHideNothingProveNothing) {
  const std::string input = "float[B, S, 8] inputs_embeds";
  const std::string masked = input + ", int64[B, E] encoder_attention_mask";
  const std::string first = edited(edited(grown, input, masked), "present_key = Concat",
                                   "seen = Shape (encoder_attention_mask) present_key = Concat");
  const std::string second = edited(
      edited(edited(respelled, input, masked), "int64[1] last = {3}",
             "int64[1] last = {3}, float whole = {1}, float twice = {2}, int64 hidden = {0}"),
      "attended = Div (sums, total)",
      "least = ReduceMin <keepdims = 0> (encoder_attention_mask) hides = Equal (least, hidden) "
      "factor = Where (hides, twice, whole) "
      "quotient = Div (sums, total) attended = Mul (quotient, factor)");
  const CheckReport report = check(first, second);
  EXPECT_EQ(report.verdict(), Verdict::Tested) << weakest(report);
  EXPECT_NE(weakest(report).find("'encoder_attention_mask' hides no position"), std::string::npos)
      << weakest(report);
}

TEST(Checker, CachesThatKeepAnUnknownNumberOfRowsAreNotCompared) {
  auto first = read(grown), second = read(respelled);
  auto wrong = read(
      edited(edited(respelled, "int64[1] last = {3}", "int64[1] last = {3}, float twice = {2}"),
             "attended = Div (sums, total)",
             "quotient = Div (sums, total) attended = Mul (quotient, twice)"));
  ASSERT_TRUE(first && second && wrong);
  ir::Manifest last = growing();
  for (ir::ManifestCache& cache : last.caches)
    cache.storage = ir::RingCache{};
  for (const ir::Model* other : {&*second, &*wrong}) {
    const CheckReport report = checkModels({*first, last}, {*other, last});
    EXPECT_EQ(report.verdict(), Verdict::Skipped);
    EXPECT_NE(weakest(report).find("that the cache 'past_key' keeps is unknown"), std::string::npos)
        << weakest(report);
  }
}

TEST(Checker, ResultsOfOperatorsWithoutARuleAreNotProved) {
  auto withOperator = [](const char* text, const char* from) {
    return edited(
        edited(edited(text, "opset_import: [\"\" : 17]", "opset_import: [\"\" : 17, \"own\" : 1]"),
               "Unsqueeze (inputs_embeds", "Unsqueeze (mixed"),
        from, "mixed = own.Mix (inputs_embeds) " + std::string(from));
  };
  const CheckReport report =
      check(withOperator(grown, "rows = "), withOperator(respelled, "new_rows = "));
  EXPECT_NE(report.verdict(), Verdict::Proved);
  EXPECT_NE(report.verdict(), Verdict::ProvedReduced);
  EXPECT_NE(report.verdict(), Verdict::Different);
  EXPECT_NE(weakest(report).find("rule"), std::string::npos) << weakest(report);
}

TEST(Checker, LimitsOfAManifestDoNotHideDifferences) {
  // Steps of several tokens differ.
  const std::string chunked =
      edited(edited(respelled, "int64[1] last = {3}>",
                    "int64[1] last = {3}, int64 one = {1}, int64 second = {1}, float whole = {1}, "
                    "float twice = {2}>"),
             "attended = Div (sums, total)",
             "extents = Shape (inputs_embeds) count = Gather (extents, second) many = Greater "
             "(count, one) "
             "factor = Where (many, twice, whole) quotient = Div (sums, total) "
             "attended = Mul (quotient, factor)");
  auto first = read(grown), second = read(chunked), right = read(respelled);
  ASSERT_TRUE(first && second && right);
  ir::Manifest limited = growing();
  limited.stepLimit = 1;
  EXPECT_EQ(checkModels({*first, growing()}, {*second, growing()}).verdict(), Verdict::Different);
  const CheckReport report = checkModels({*first, growing()}, {*second, limited});
  EXPECT_EQ(report.verdict(), Verdict::Tested);
  EXPECT_NE(weakest(report).find("its limit of 1 tokens per step, where it differs"),
            std::string::npos)
      << weakest(report);
  // A limit that hides nothing changes nothing.
  EXPECT_EQ(checkModels({*first, growing()}, {*right, limited}).verdict(), Verdict::ProvedReduced);
}

TEST(Checker, UnknownOperatorsAreFunctionsOfTheirOperands) {
  const std::string custom =
      edited(edited(grown, "opset_import: [\"\" : 17]", "opset_import: [\"\" : 17, \"own\" : 1]"),
             "weights = Softmax", "mixed = own.Mix (scores) weights = Softmax");
  EXPECT_EQ(check(custom, custom).verdict(), Verdict::Proved);
  // The second model computes the same from its result.
  const std::string later =
      edited(custom, "Softmax <axis = -1> (scores)", "Softmax <axis = -1> (mixed)");
  EXPECT_EQ(check(later, later).verdict(), Verdict::Proved);
  EXPECT_NE(check(custom, later).verdict(), Verdict::Proved);
  EXPECT_NE(check(custom, later).verdict(), Verdict::ProvedReduced);
}

} // namespace
} // namespace kvopt::check
