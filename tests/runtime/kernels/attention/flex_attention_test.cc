// FlexAttention: plain, with functions of scores and probabilities, element types, refusals.
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "tests/runtime/kernels/plain_attention.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

struct FlexCase {
  std::string element = "float", attributes, declarations;
  ElementType type = ElementType::Float;
  int64_t heads = 4, groups = 2, rows = 3, keys = 5;
};

constexpr int64_t batches = 2, width = 6, valueWidth = 4;

struct FlexProblem {
  explicit FlexProblem(const FlexCase& given) : c(given) {
    query = randomTensor(c.type, {batches, c.heads, c.rows, width}, 1);
    key = randomTensor(c.type, {batches, c.groups, c.keys, width}, 2);
    value = randomTensor(c.type, {batches, c.groups, c.keys, valueWidth}, 3);
    plain.batches = batches;
    plain.heads = c.heads;
    plain.groups = c.groups;
    plain.rows = c.rows;
    plain.keys = c.keys;
    plain.width = width;
    plain.valueWidth = valueWidth;
    plain.query = query.values();
    plain.key = key.values();
    plain.value = value.values();
    plain.scale = 1 / std::sqrt(double(width));
  }

  /// The elements of Y, or an error.
  llvm::Expected<std::vector<double>> run() const {
    const std::string text = formatted(
        R"(<ir_version: 10, opset_import: ["" : 24, "ai.onnx.preview" : 1]>
g ({0}[B, H, S, D] q, {0}[B, G, T, D] k, {0}[B, G, T, E] v) => ({0}[B, H, S, E] y)
{2} {{ y = ai.onnx.preview.FlexAttention{1}(q, k, v) }})",
        c.element, c.attributes, c.declarations);
    auto model = llvm::cantFail(readText(text, testOperators()));
    if (llvm::Error error = inferShapes(model->graph()))
      return error;
    auto executor = Executor::create(*model, testKernels());
    if (!executor)
      return executor.takeError();
    const TensorView views[] = {query.view(), key.view(), value.view()};
    auto outputs = (*executor)->run(views);
    if (!outputs)
      return outputs.takeError();
    TestTensor result(c.type, {batches, c.heads, c.rows, valueWidth});
    EXPECT_EQ(outputs->front().view.shape, result.shape());
    std::memcpy(result.data(), outputs->front().view.data, result.bytes());
    return result.values();
  }

  void expect(const std::vector<double>& expected, double tolerance = 1e-5) const {
    const std::vector<double> values = llvm::cantFail(run());
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], expected[i], tolerance) << i;
  }
  std::string error() const {
    auto values = run();
    return values ? "" : takeDiagnostic(values.takeError()).str();
  }

  const FlexCase c;
  TestTensor query, key, value;
  PlainAttention plain;
};

TEST(FlexAttention, ElementTypesHeadsAndPrecisions) {
  const std::pair<const char*, ElementType> types[] = {{"float", ElementType::Float},
                                                       {"float16", ElementType::Float16},
                                                       {"bfloat16", ElementType::BFloat16},
                                                       {"double", ElementType::Double}};
  for (const auto& [name, type] : types)
    for (const char* precision : {"", "<softmax_precision = 1>", "<softmax_precision = 10>",
                                  "<softmax_precision = 11>", "<softmax_precision = 16>"})
      for (int64_t groups : {1, 2, 4}) {
        SCOPED_TRACE(formatted("{} {} {} groups", name, precision, groups));
        FlexCase c;
        c.element = name;
        c.type = type;
        c.groups = groups;
        c.attributes = precision;
        const FlexProblem problem(c);
        const bool isNarrow = llvm::StringRef(precision).contains("= 10") ||
                              llvm::StringRef(precision).contains("16");
        const bool isExact = type == ElementType::Double &&
                             (*precision == 0 || llvm::StringRef(precision).contains("11"));
        problem.expect(problem.plain.output(),
                       isExact    ? 1e-14
                       : isNarrow ? 2e-2
                                  : attentionTolerance(
                                        type == ElementType::Double ? ElementType::Float : type));
      }
}

TEST(FlexAttention, ScaleAndNoKeys) {
  FlexCase c;
  c.attributes = "<scale = -0.7>";
  FlexProblem scaled(c);
  scaled.plain.scale = -0.7;
  scaled.expect(scaled.plain.output());
  c.keys = 0;
  const FlexProblem empty(c);
  empty.expect(std::vector<double>(size_t(batches * c.heads * c.rows * valueWidth), 0));
}

/// 2 * tanh(s / 2) as the score's function, which reads a constant of the graph around it.
TEST(FlexAttention, AFunctionOfScores) {
  FlexCase c;
  c.declarations = "<float cap = {2}>";
  c.attributes = R"(<score_mod = soft (float[B, H, S, T] s) => (float[B, H, S, T] r)
    { a = Div(s, cap) t = Tanh(a) r = Mul(t, cap) }>)";
  FlexProblem problem(c);
  problem.plain.softcap = 2;
  problem.expect(problem.plain.output());
}

/// Halved probabilities, and scores passed on as they are.
TEST(FlexAttention, AFunctionOfProbabilities) {
  FlexCase c;
  c.declarations = "<float half = {0.5}>";
  c.attributes = R"(<score_mod = same (float[B, H, S, T] s) => (float[B, H, S, T] s) {},
    prob_mod = halved (float[B, H, S, T] p) => (float[B, H, S, T] r) { r = Mul(p, half) }>)";
  const FlexProblem problem(c);
  std::vector<double> expected = problem.plain.output();
  for (double& element : expected)
    element /= 2;
  problem.expect(expected);
}

TEST(FlexAttention, Refuses) {
  FlexCase c;
  c.attributes = "<softmax_precision = 7>";
  EXPECT_NE(FlexProblem(c).error().find("softmax_precision = 7"), std::string::npos);
  c.attributes = R"(<score_mod = other (float[B, H, S, T] s) => (double[B, H, S, T] r)
    { r = Cast<to = 11>(s) }>)";
  EXPECT_NE(FlexProblem(c).error().find("score_mod does not return"), std::string::npos);
  c.attributes = R"(<score_mod = two (float s, float t) => (float r) { r = Add(s, t) }>)";
  EXPECT_NE(FlexProblem(c).error().find("one input and one output"), std::string::npos);
  c.attributes = "";
  c.groups = 3;
  EXPECT_NE(FlexProblem(c).error(), "");
}

} // namespace
} // namespace kvopt
