// The printed form of each construct, and that it is a fixpoint of printing and reading.
#include "ir/text/printer.h"

#include "tests/ir/onnx/onnx_fixture.h"
#include "tests/ir/text/text_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;

namespace {

using testing::HasSubstr;
using testing::Not;

std::string printed(llvm::StringRef text, const PrintOptions& options = {}) {
  auto model = readOrFail(text);
  return model ? printText(*model, options) : "";
}

/// Expects print(read(print(m))) == print(m).
void expectFixpoint(const Model& model, const PrintOptions& options = {}) {
  std::string once = printText(model, options);
  auto again = readText(once, textRegistry(), "printed");
  if (!again) {
    ADD_FAILURE() << takeDiagnostic(again.takeError()).str() << "\n" << once.substr(0, 4000);
    return;
  }
  std::string twice = printText(**again, options);
  if (once == twice)
    return;
  size_t at = 0;
  while (at < once.size() && at < twice.size() && once[at] == twice[at])
    ++at;
  size_t from = at < 200 ? 0 : at - 200;
  ADD_FAILURE() << "differs at byte " << at << "\nfirst:  " << once.substr(from, 400)
                << "\nsecond: " << twice.substr(from, 400);
}

TEST(TextPrinter, PrintsAModel) {
  EXPECT_EQ(printed(R"(<ir_version: 8, opset_import: ["" : 17], producer_name: "p">
    g (float[N,2] x, int64[] "a.b") => (float[N,2] y) <float[2] w = {1, 2.5}> {
    [n] t = Add(x, w) y = com.microsoft.Gelu(t, , "a.b") <k = 1.0, s = "q", m = [1,2]> })"),
            R"(<
  ir_version: 8,
  opset_import: ["" : 17],
  producer_name: "p"
>
g (float[N, 2] x, int64[] "a.b") => (float[N, 2] y)
<
  float[2] w = {1, 2.5}
>
{
  [n] t = Add (x, w)
  y = com.microsoft.Gelu <k = 1.0, s = "q", m = [1, 2]> (t, "", "a.b")
}
)");
}

TEST(TextPrinter, PrintsSubgraphsIndented) {
  EXPECT_THAT(
      printed("g (bool c, float x) => (y) { y = If <b = s () => (t) { t = Neg (x) }> (c) }"),
      HasSubstr("  y = If <b = s () => (t)\n    {\n      t = Neg (x)\n    }> (c)\n"));
}

TEST(TextPrinter, WrapsLongSignatures) {
  std::string text = "g (float[batch, sequence] first_of_the_inputs, float[batch, sequence] "
                     "second_of_the_inputs, float[batch, sequence] third) => () {}";
  EXPECT_THAT(printed(text), HasSubstr("g (\n  float[batch, sequence] first_of_the_inputs,\n"));
}

TEST(TextPrinter, LeavesOutLargeTensors) {
  PrintOptions options;
  options.maxTensorElements = 2;
  std::string text =
      printed("g () => () <float[2] a = {1, 2}, float[3] b = {1, 2, 3}> {}", options);
  EXPECT_THAT(text, HasSubstr("float[2] a = {1, 2},\n"));
  EXPECT_THAT(text, HasSubstr("float[3] b = {…3 elements}\n"));
  EXPECT_THAT(textRefusal(text), HasSubstr("left out when the text was printed"));
}

TEST(TextPrinter, PrintsTypesAsComments) {
  auto model =
      readOrFail("g (float[N] x) => (y) <float[N, \"a\nb\"] t> { t, u = F (x) y = G (t) }");
  ASSERT_TRUE(model);
  PrintOptions options;
  options.types = true;
  std::string text = printText(*model, options);
  EXPECT_THAT(text, HasSubstr("t, u = F (x)  // float[N, \"a\\x0ab\"], ?\n"));
  EXPECT_TRUE(readOrFail(text));
}

TEST(TextPrinter, DeclaresTypes) {
  auto model = readOrFail("g (float[N] x) => (y) <float[N, 2] t> { t = F (x) y = G (t) }");
  ASSERT_TRUE(model);
  PrintOptions options;
  options.declareTypes = true;
  EXPECT_THAT(printText(*model, options), HasSubstr("<\n  float[N, 2] t\n>"));
  EXPECT_THAT(printText(*model), Not(HasSubstr("<\n  float[N, 2] t\n>")));
  expectFixpoint(*model, options);
}

TEST(TextPrinter, PrintsANodeInOneLine) {
  auto model =
      readOrFail("g (bool c) => () { [l] y = If <b = s () => () { t = F () }, doc = \"a\nb\","
                 "big = float[17] {1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7}> (c) }");
  ASSERT_TRUE(model);
  EXPECT_EQ(
      printText(model->graph().nodes().front()),
      "[l] y = If <b = s () => () {…}, doc = \"a\\x0ab\", big = float[17] {…17 elements}> (c)");
}

TEST(TextPrinter, PrintsFloatsShortestAndAsFloats) {
  std::string text = printed("g () => () { = F <a = 1.0, b = 0.1, c = -0.0, d = 1e20, e = -inf, "
                             "f = nan, g = 1.17549435e-38, h = -nan> () }");
  EXPECT_THAT(text, HasSubstr("<a = 1.0, b = 0.1, c = -0.0, d = 1e+20, e = -inf, f = nan, "
                              "g = 1.1754944e-38, h = -nan>"));
}

const char* const models[] = {
    "g () => () {}",
    "\"\" () => () {}",
    "<ir_version: 9, opset_import: [\"\" : 18, \"a\" : 1], doc_string: \"x\ny\\\\z\\\"\", domain: "
    "\"d\", "
    "model_version: 3, producer_version: \"1\", metadata_props: [\"k\": \"v\", \"k\": \"\"]> g () "
    "=> () {}",
    "g (float a, float[] b, float[?, N, 0, \"2*past + 1\", \"a b\"] c, d, undefined[2] e, dtype_99 "
    "f) "
    "=> (a, float[] b) {}",
    "g (\"inf\", \"float\", \"seq\", \"NaN\", \"1a\", \"a.b/c\\\"d\\\\e\", \"line\nbreak\", "
    "\"ünï\") => () "
    "{ \"nan\" = F (\"inf\", \"float\", \"seq\") }",
    "g (float[2] x = {1, 2}, float[N] y) => () <float[1] y = {3}> {}",
    "g () => () <float16[3] a = {0.1, 65504, nan}, bfloat16[2] b = {0.1, -inf}, double c = {0.1}, "
    "int8[2] d = {-128, 127}, uint64[1] e = {18446744073709551615}, bool[2] f = {0, 1}, int4[3] g "
    "= "
    "{-8, 7, -1}, uint4[1] h = {15}, float8e5m2[1] i = {255}, complex64[1] j = {1, -2.5}, "
    "float4e2m1[3] k = {1, 2, 15}, float[0, 3] l = {}, complex128 m = {1, 0.1}, "
    "string[2] n = {\"a\\\"b\", \"\"}, int16[1] o = {-5}, uint16[1] p = {5}, uint32[1] q = {7}, "
    "int32[2, 1] r = {1, 2}, uint8[1] s = {255}> {}",
    "g (x) => () { , b, = F (, x, ) = G () \"\" = H (\"\") , = I (,) }",
    "g (x) => () { [\"a b\"] y = com.microsoft.F:o (x) z = \"we-ird\".\"1F\":\"o o\" (x) w = \"\" "
    "(y) }",
    "g () => () { a = F <i = 1, f = 1.5, s = \"\", t = string[1] {\"x\"}, is = [1], fs = [1.0, "
    "inf], "
    "ss = [\"a\"], ts = [float {1}], ei: ints = [], ef: floats = [], es: strings = [], et: tensors "
    "= [], "
    "eg: graphs = [], \"odd name\" = 1, metadata_props: [\"k\": \"v\"]> () }",
    "g () => () { a = F <metadata_props: [\"k\": \"v\"]> () b = F <metadata_props = [\"k\"]> () }",
    "g (bool c, x) => (y) <float[1] w = {1}> { y = If <a = s (float p = {1}) => (t) <float u = "
    "{2}> { t "
    "= F (x, w) "
    "q = Loop <body = b (i, float k) => (k, x) { z = F (t, i) }> () }, b = \"e\" () => (x) {}> (c) "
    "}",
    "g () => () { a = Switch <cases = [p () => () {}, q () => (r) { r = F () }]> () }",
    "<opset_import: [\"\" : 17]> g (x) => (y) { y = d.e.F <k = 1> (x) } <domain: \"d.e\", "
    "opset_import: "
    "[\"\" : 17], overload: \"o\", doc_string: \"s\"> F <k, l: float = 2.0, m: ints = [], n = "
    "\"s\"> (x, float[N] z) "
    "=> (y) { y = G <a: int = @k, b = @l, c: tensor = @k, d = @k> (x) }",
};

TEST(TextPrinter, IsAFixpointOfHandWrittenModels) {
  for (const char* text : models) {
    SCOPED_TRACE(text);
    auto model = readOrFail(text);
    ASSERT_TRUE(model);
    expectFixpoint(*model);
    PrintOptions options;
    options.declareTypes = true;
    expectFixpoint(*model, options);
  }
}

/// An attribute that is an integer although its operator's definition says float keeps its kind.
TEST(TextPrinter, StatesKindsThatTheDefinitionWouldChange) {
  OpRegistry registry;
  define(registry, "Scale", 1).in("x").out("y").attr("by", 1.0F);
  std::string text =
      "<opset_import: [\"\" : 17]> g (float x) => () { y = Scale <by: int = 3> (x) }";
  auto model = readText(text, registry);
  ASSERT_TRUE(static_cast<bool>(model));
  std::string once = printText(**model);
  EXPECT_THAT(once, HasSubstr("<by: int = 3>"));
  auto again = readText(once, registry);
  ASSERT_TRUE(static_cast<bool>(again));
  EXPECT_EQ(printText(**again), once);
}

/// Stable under a trip through the file format as well.
TEST(TextPrinter, SurvivesExportAndImport) {
  auto model = readOrFail(R"(<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
    g (float[N, "past + 1"] x, bool c, float[2] k = {1, 2}) => (float[N] z) <string[2] s = {"a", "b"}, int4[3] q = {1, -2, 3}> {
      [n] y, "" = d.F:o <a = 1, b = [1.5], t = float16[1] {0.1}, metadata_props: ["k": "v"]> (x, "", s, q)
      z = If <then_branch = h () => (q1) { q1 = Neg (y) }, else_branch = e () => (q2) { q2 = Abs (y) }> (c)
    }
    <domain: "d", opset_import: ["" : 17], overload: "o"> F <a, b: floats = [1.0]> (x) => (y) { y = Elu <alpha: float = @a> (x) })");
  ASSERT_TRUE(model);
  auto bytes = exportModelBytes(*model);
  ASSERT_TRUE(static_cast<bool>(bytes)) << takeDiagnostic(bytes.takeError()).str();
  auto again = importText(*bytes, textRegistry());
  ASSERT_TRUE(static_cast<bool>(again)) << takeDiagnostic(again.takeError()).str();
  EXPECT_EQ(printText(**again), printText(*model));
}

TEST(TextPrinter, IsAFixpointOfTheCorpus) {
  std::vector<std::string> paths = sampleOf(corpusModels());
  if (paths.empty())
    GTEST_SKIP() << "no models under " << corpusFolder() << "; set KVOPT_CORPUS";
  unsigned tried = 0;
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    auto model = importModel(path, textRegistry());
    if (!model) { // whether import takes every file is for its own tests to say
      llvm::consumeError(model.takeError());
      continue;
    }
    ++tried;
    expectFixpoint(**model);
  }
  EXPECT_GE(tried, leastInSample(50));
  RecordProperty("models", static_cast<int>(tried));
}

} // namespace
} // namespace kvopt
