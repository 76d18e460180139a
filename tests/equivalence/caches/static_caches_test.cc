// Caches of fixed extents, in every spelling of a write: overwritten in place they give the same,
// step by step, as the model that copies them.
#include "ir/text/reader.h"
#include "passes/pattern/rewriter.h"
#include "support/format.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

#include <cstring>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

struct StaticCase {
  const char* name;
  int opset;
  const char* past; ///< type of both pasts
  /// The present `c_@` and the keys or values `a_@` [B,2,C,4], from `past_@` and the new rows `x_@`
  /// [B,S,2,4] at `position` [S].
  const char* write;
  const char* mask; ///< of the attention
};

constexpr const char* seenKeys = "seen";

const StaticCase staticCases[] = {
    {"ScatterElements", 17, "[B, 2, 24, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  column_@ = Reshape (position, rows_of_heads)
  extents_@ = Shape (f_@)
  index_@ = Expand (column_@, extents_@)
  c_@ = ScatterElements <axis = 2> (past_@, index_@, f_@)
  a_@ = Identity (c_@))",
     seenKeys},
    {"ScatterElements_of_rows", 17, "[B, 24, 2, 4]", R"(
  column_@ = Reshape (position, heads_of_rows)
  extents_@ = Shape (x_@)
  index_@ = Expand (column_@, extents_@)
  c_@ = ScatterElements <axis = 1> (past_@, index_@, x_@)
  a_@ = Transpose <perm = [0, 2, 1, 3]> (c_@))",
     seenKeys},
    {"ScatterND_of_points", 17, "[B, 2, 24, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  b_@ = Expand (batch_column, point_shape)
  h_@ = Expand (head_column, point_shape)
  s_@ = Expand (row_column, point_shape)
  points_@ = Concat <axis = 3> (b_@, h_@, s_@)
  c_@ = ScatterND (past_@, points_@, f_@)
  a_@ = Identity (c_@))",
     seenKeys},
    {"index_put", 17, "[B, 2, 24, 4]", R"(
  there_@ = Transpose <perm = [2, 0, 1, 3]> (past_@)
  u_@ = Transpose <perm = [1, 0, 2, 3]> (x_@)
  w_@ = ScatterND (there_@, single, u_@)
  c_@ = Transpose <perm = [1, 2, 0, 3]> (w_@)
  a_@ = Identity (c_@))",
     seenKeys},
    {"splice", 17, "[B, 2, 24, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  next_@ = Add (first_position, token_list)
  end_@ = Constant <value_ints = [9223372036854775807]> ()
  before_@ = Slice (past_@, first, first_position, two)
  after_@ = Slice (past_@, next_@, end_@, two)
  c_@ = Concat <axis = 2> (before_@, f_@, after_@)
  a_@ = Identity (c_@))",
     seenKeys},
    {"TensorScatter", 24, "[B, 2, 24, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  c_@ = TensorScatter <axis = 2> (past_@, f_@, first_positions)
  a_@ = Identity (c_@))",
     seenKeys},
    {"ring", 17, "[B, 2, 8, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  slot_@ = Mod (position, eight)
  column_@ = Reshape (slot_@, rows_of_heads)
  extents_@ = Shape (f_@)
  index_@ = Expand (column_@, extents_@)
  c_@ = ScatterElements <axis = 2> (past_@, index_@, f_@)
  a_@ = Identity (c_@))",
     ""},
};

std::string ofSide(llvm::StringRef text, char side) {
  std::string result = text.str();
  std::replace(result.begin(), result.end(), '@', side);
  return result;
}

std::string modelText(const StaticCase& c) {
  return formatted(R"(<ir_version: 10, opset_import: ["" : {0}, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, int64[S] cache_position, float{1} past_k, float{1} past_v, float[1, 1, 16] table,
         float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float{1} c_k, float{1} c_v)
{{
{projections}
  position = Identity (cache_position)
  rows_of_heads = Constant <value_ints = [1, 1, -1, 1]> ()
  heads_of_rows = Constant <value_ints = [1, -1, 1, 1]> ()
  eight = Constant <value_int = 8> ()
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  first = Constant <value_ints = [0]> ()
  second = Constant <value_ints = [1]> ()
  end_axis = Constant <value_ints = [-1]> ()
  extents = Shape (input_ids)
  batch = Gather (extents, zero)
  batch_list = Gather (extents, first)
  token_list = Gather (extents, second)
  two = Constant <value_ints = [2]> ()
  single = Unsqueeze (position, end_axis)
  points_of_batch = Constant <value_ints = [-1, 1, 1, 1]> ()
  points_of_heads = Constant <value_ints = [1, -1, 1, 1]> ()
  batches = Range (zero, batch, one)
  batch_column = Reshape (batches, points_of_batch)
  heads = Constant <value_ints = [0, 1]> ()
  head_column = Reshape (heads, points_of_heads)
  row_column = Reshape (position, rows_of_heads)
  point_shape = Concat <axis = 0> (batch_list, two, token_list, second)
  first_position = Gather (position, first)
  first_positions = Expand (first_position, batch_list)
  slots = Constant <value_ints = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]> ()
  seen = LessOrEqual (slots, row_column)
{2}
{3}
  o = ai.kvopt.Sdpa <scale = 0.5> (q, a_k, a_v{4})
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
}})",
                   c.opset, c.past, ofSide(c.write, 'k'), ofSide(c.write, 'v'),
                   *c.mask ? std::string(", ") + c.mask : "",
                   named("projections", decoderProjections));
}

class StaticCaches : public testing::Test {
protected:
  Toolkit toolkit;
  TemporaryFolder folder;
};

class SpelledStaticCaches : public StaticCaches, public testing::WithParamInterface<StaticCase> {};

TEST_P(SpelledStaticCaches, AreOverwrittenInPlace) {
  const std::string path = writtenModel(modelText(GetParam()), toolkit, folder);
  DrivenModel copied = raised(path, toolkit);
  EquivalencePlan plan;
  plan.prompt = 5;
  plan.chunks = {3, 1};
  plan.decodeSteps = 6;
  plan.vocabulary = 50;
  plan.tolerance = {0, 0};
  for (const char* target : {"kvopt", "onnx24"}) {
    SCOPED_TRACE(target);
    DrivenModel inPlace = rewritten(path, toolkit, "", target);
    ASSERT_EQ(inPlace.manifest.caches.size(), 2U);
    for (const ManifestCache& cache : inPlace.manifest.caches)
      EXPECT_TRUE(cache.isOneBuffer()) << cache.past;
    VerificationReport report = valueOrThrow(verifyModels(
        *copied.model, copied.manifest, *inPlace.model, inPlace.manifest, plan, 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_EQ(report.comparison.steps.size(), 9U);
    EXPECT_EQ(report.cacheBytesCopied, 0);
    // Two caches of two heads for two batch rows; 15 tokens of 4 numbers.
    EXPECT_EQ(report.cacheBytesWritten, 2 * 2 * 2 * 15 * 4 * 4);
    for (const StepComparison& step : report.comparison.steps)
      for (const TensorComparison& cache : step.caches)
        EXPECT_TRUE(cache.comparison.bitExact) << cache.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpelledStaticCaches, testing::ValuesIn(staticCases),
                         [](const testing::TestParamInfo<StaticCase>& parameter) {
                           return std::string(parameter.param.name);
                         });

/// A model of one token a step.
/// Codes and scales go where the model puts its rows.
TEST_P(SpelledStaticCaches, AreOverwrittenWithCodes) {
  const std::string path = writtenModel(modelText(GetParam()), toolkit, folder);
  if (llvm::StringRef(GetParam().name) == "ScatterElements_of_rows") {
    EXPECT_THROW(rewritten(path, toolkit, "", "int8"), std::runtime_error);
    return;
  }
  EquivalencePlan plan;
  plan.prompt = 5;
  plan.chunks = {3, 1};
  plan.decodeSteps = 6;
  plan.vocabulary = 50;
  plan.tolerance = {1e-5, 0};
  DrivenModel exported = raised(path, toolkit);
  DrivenModel codes = rewritten(path, toolkit, "", "int8");
  ASSERT_EQ(codes.manifest.caches.size(), 4U);
  for (const ManifestCache& cache : codes.manifest.caches) {
    EXPECT_TRUE(cache.isOneBuffer());
    EXPECT_EQ(cache.dtype, isScale(cache.role) ? ElementType::Float : ElementType::Int8);
  }
  VerificationReport report = valueOrThrow(verifyModels(
      *exported.model, exported.manifest, *codes.model, codes.manifest, plan, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  ASSERT_TRUE(report.quantization);
  EXPECT_EQ(report.quantization->sites, 1U);
  EXPECT_EQ(report.cacheBytesCopied, 0);
  expectEqualBodies(codes, plan, toolkit);

  // Scales that are not those of the rows beside them.
  const auto isDifferent = [&](llvm::function_ref<void(Graph&)> forge) {
    DrivenModel forged = rewritten(path, toolkit, "", "int8");
    forge(forged.model->graph());
    return valueOrThrow(verifyModels(*exported.model, exported.manifest, *forged.model,
                                     forged.manifest, plan, 1, toolkit))
        .isDifferent();
  };
  const auto roundingsIn = [](Graph& graph) {
    std::vector<Node*> roundings;
    for (Node& node : graph.nodes())
      if (node.is("ai.kvopt::QuantizeRows"))
        roundings.push_back(&node);
    return roundings;
  };
  EXPECT_FALSE(isDifferent([](Graph&) {}));
  EXPECT_TRUE(isDifferent([&](Graph& graph) {
    const std::vector<Node*> roundings = roundingsIn(graph);
    roundings[0]->result(1).replaceAllUsesWith(roundings[1]->result(1));
    pattern::restoreOrder(graph);
  }));
  EXPECT_TRUE(isDifferent([&](Graph& graph) {
    for (Node& node : graph.nodes())
      if (node.is("ai.kvopt::QuantizedSdpa"))
        node.setOperand(2, node.operand(4));
  }));
}

TEST_F(StaticCaches, RowsThatAreSelectedAreOverwrittenInPlace) {
  StaticCase model = staticCases[0];
  model.write = R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  slot_column_@ = Reshape (slots, rows_of_heads)
  here_@ = Equal (slot_column_@, row_column)
  c_@ = Where (here_@, f_@, past_@)
  a_@ = Identity (c_@))";
  std::string text = modelText(model);
  for (const auto& [before, after] : {std::pair("int64[B, S] input_ids", "int64[B, 1] input_ids"),
                                      std::pair("int64[S] cache", "int64[1] cache"),
                                      std::pair("float[B, S, 10]", "float[B, 1, 10]")})
    text.replace(text.find(before), std::strlen(before), after);
  const std::string path = writtenModel(text, toolkit, folder);
  EquivalencePlan plan;
  plan.prompt = 1;
  plan.chunks = {};
  plan.decodeSteps = 9;
  plan.vocabulary = 50;
  plan.tolerance = {0, 0};
  const DrivenModel copied = raised(path, toolkit);
  const DrivenModel inPlace = rewritten(path, toolkit);
  const VerificationReport report = valueOrThrow(verifyModels(
      *copied.model, copied.manifest, *inPlace.model, inPlace.manifest, plan, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  EXPECT_EQ(report.cacheBytesCopied, 0);
  EXPECT_EQ(report.cacheBytesWritten, 2 * 2 * 2 * 10 * 4 * 4);
}

/// Rows behind those that are seen are read only where the positions do not count on.
TEST_F(StaticCaches, ReadTheRowsThatPositionsReach) {
  const std::string path = writtenModel(modelText(staticCases[0]), toolkit, folder);
  const DrivenModel copied = raised(path, toolkit);
  const DrivenModel inPlace = rewritten(path, toolkit);
  const Node* attention = nullptr;
  for (const Node& node : inPlace.model->graph().nodes())
    if (node.is("ai.kvopt::Sdpa"))
      attention = &node;
  ASSERT_NE(attention, nullptr);
  EXPECT_NE(attention->operand(5), nullptr);
  SessionOptions options;
  options.batch = 2;
  auto a = openSession(copied, toolkit.runner->kernels(), options);
  auto b = openSession(inPlace, toolkit.runner->kernels(), options);
  const std::vector<std::vector<int64_t>> fed = {{0, 1, 2}, {3},      {7, 5},    {6, 7}, {23},
                                                 {0},       {22, 23}, {9, 9, 9}, {4}};
  for (const std::vector<int64_t>& positions : fed) {
    SCOPED_TRACE(positions.front());
    DecoderStep step;
    step.pastLength = a->length();
    const auto count = static_cast<int64_t>(positions.size());
    step.tokens.assign(2, std::vector<int64_t>(positions.size(), 7 + count));
    step.tokens[1][0] = 3;
    InputRecipe recipe;
    recipe.input = "cache_position";
    recipe.kind = InputRecipe::Kind::Numbers;
    recipe.numbers.assign(positions.begin(), positions.end());
    recipe.hasShape = true;
    recipe.shape = {std::string("new")};
    step.recipes = recipe;
    const StepResult expected = valueOrThrow(stepDecoder(*a, step));
    const StepResult found = valueOrThrow(stepDecoder(*b, step));
    const auto compared = valueOrThrow(
        compareTensors(expected.outputs[0].tensor.view, found.outputs[0].tensor.view, {1e-6, 0}));
    EXPECT_TRUE(compared.isWithin()) << compared.maxAbs;
    EXPECT_GT(compared.compared, 0);
  }
}

struct RefusedWrite {
  const char* name;
  const char* write; ///< as StaticCase::write
  const char* reason;
};

const RefusedWrite refusedWrites[] = {
    {"IntoWhatIsMadeOfTheCache", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  column_@ = Reshape (position, rows_of_heads)
  extents_@ = Shape (f_@)
  index_@ = Expand (column_@, extents_@)
  turned_@ = Transpose <perm = [0, 1, 3, 2]> (past_@)
  back_@ = Transpose <perm = [0, 1, 3, 2]> (turned_@)
  faded_@ = Mul (back_@, half)
  c_@ = ScatterElements <axis = 2> (faded_@, index_@, f_@)
  a_@ = Identity (c_@))",
     "past-not-input"},
    {"OfACacheThatIsReadBefore", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  column_@ = Reshape (position, rows_of_heads)
  extents_@ = Shape (f_@)
  index_@ = Expand (column_@, extents_@)
  mean_@ = ReduceMean <keepdims = 1> (past_@)
  g_@ = Add (f_@, mean_@)
  c_@ = ScatterElements <axis = 2> (past_@, index_@, g_@)
  a_@ = Identity (c_@))",
     "cache-escapes"},
    {"WithAnotherOrderOfTheAxes", R"(
  there_@ = Transpose <perm = [2, 1, 0, 3]> (past_@)
  u_@ = Transpose <perm = [1, 2, 0, 3]> (x_@)
  w_@ = ScatterND (there_@, single, u_@)
  c_@ = Transpose <perm = [2, 1, 0, 3]> (w_@)
  d_@ = Add (c_@, c_@)
  a_@ = Identity (d_@))",
     "cache-transformed"},
};

class RefusedStaticCaches : public testing::TestWithParam<RefusedWrite> {};

TEST_P(RefusedStaticCaches, KeepTheirReason) {
  Toolkit toolkit;
  TemporaryFolder folder;
  StaticCase model = staticCases[0];
  model.write = GetParam().write;
  std::string text = modelText(model);
  text.insert(text.find("  slots ="), "  half = Constant <value_float = 0.5> ()\n");
  auto read = valueOrThrow(readText(text, toolkit.ops));
  successOrThrow(inferShapes(read->graph()));
  const std::string path = folder.path("model.onnx");
  successOrThrow(exportModel(*read, path));
  RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
  const auto failures =
      targets::refusals(*toolkit.targets.find("kvopt"), recovered.context->sites, *recovered.model);
  ASSERT_EQ(failures.size(), 1U);
  ASSERT_TRUE(failures.front());
  EXPECT_EQ(pattern::reasonName(failures.front()->code), GetParam().reason)
      << failures.front()->str();
}

INSTANTIATE_TEST_SUITE_P(All, RefusedStaticCaches, testing::ValuesIn(refusedWrites),
                         [](const testing::TestParamInfo<RefusedWrite>& parameter) {
                           return std::string(parameter.param.name);
                         });

} // namespace
} // namespace kvopt
