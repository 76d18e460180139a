// Caches of every layout: growing and in place give the same, step by step.
#include "support/format.h"
#include "tests/equivalence/caches/cache_plan.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

struct LayoutCase {
  const char* name;
  const char* layout;  ///< of both caches, as sites report it
  const char* type;    ///< of both pasts
  const char* fresh;   ///< `f` from `x` [B,S,2,4]
  int axis;            ///< of the Concat
  const char* read;    ///< `a` [B,2,T,4] from `c`
  bool transposedKeys; ///< keys only; values are BHSD
  bool sinks;
};

const LayoutCase cases[] = {
    {"BHSD", "BHSD@2", "[B, 2, P, 4]", "f = Transpose <perm = [0, 2, 1, 3]> (x)", 2,
     "a = Identity (c)", false, false},
    {"BHSD_with_sinks", "BHSD@2", "[B, 2, P, 4]", "f = Transpose <perm = [0, 2, 1, 3]> (x)", 2,
     "a = Identity (c)", false, true},
    {"BSHD", "BSHD@1", "[B, P, 2, 4]", "f = Identity (x)", 1,
     "a = Transpose <perm = [0, 2, 1, 3]> (c)", false, false},
    {"SBHD", "SBHD@0", "[P, B, 2, 4]", "f = Transpose <perm = [1, 0, 2, 3]> (x)", 0,
     "a = Transpose <perm = [1, 2, 0, 3]> (c)", false, false},
    {"BHDS", "BHDS@3", "[B, 2, 4, P]", "f = Transpose <perm = [0, 2, 3, 1]> (x)", 3,
     "a = Transpose <perm = [0, 1, 3, 2]> (c)", true, false},
    {"folded", "(BH)SD@1", "[\"2*B\", P, 4]",
     "t = Transpose <perm = [0, 2, 1, 3]> (x)\n  f = Reshape (t, folded)", 1,
     "a = Reshape (c, unfolded)", false, false},
    {"heads_in_rows", "BS(HD)@1", "[B, P, 8]", "f = Reshape (x, together)", 1,
     "t = Reshape (c, kv_shape)\n  a = Transpose <perm = [0, 2, 1, 3]> (t)", false, false},
};

/// Names of one side in a snippet over f, x, c, a and t.
std::string sided(std::string text, const std::string& side) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    bool isWord = [&] {
      auto isLetter = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
      };
      return std::string("fxcat").find(text[i]) != std::string::npos &&
             (i == 0 || !isLetter(text[i - 1])) && (i + 1 == text.size() || !isLetter(text[i + 1]));
    }();
    result += text[i];
    if (isWord)
      result += "_" + side;
  }
  return result;
}

std::string cacheText(const LayoutCase& c, const std::string& side) {
  return sided(formatted("  {}\n  c = Concat <axis = {}> (past_{}, f)\n  present_{} = Identity "
                         "(c)\n  {}\n",
                         c.fresh, c.axis, side, side, c.read),
               side);
}

std::string modelText(const LayoutCase& c) {
  const LayoutCase& values = c.transposedKeys ? cases[0] : c;
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float{0} past_k, float{1} past_v, float[1, 1, 16] table,
         float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] present_k, float[] present_v)
<float[4] sinks = {{0.5, -1, 2, 0}}>
{{
{projections}
  batch = Shape <start = 0, end = 1> (input_ids)
  tokens = Shape <start = 1, end = 2> (input_ids)
  rest = Constant <value_ints = [-1]> ()
  two = Constant <value_ints = [2]> ()
  four = Constant <value_ints = [4]> ()
  together = Constant <value_ints = [0, 0, 8]> ()
  folded = Concat <axis = 0> (rest, tokens, four)
  unfolded = Concat <axis = 0> (batch, two, rest, four)
{2}{3}
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, a_k, a_v{4})
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
}})",
                   c.type, values.type, cacheText(c, "k"), cacheText(values, "v"),
                   c.sinks ? ", , sinks" : "", named("projections", decoderProjections));
}

const std::string latentText = R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, P, 6] past, float[1, 1, 16] table,
         float[1, 16, 24] wq, float[1, 16, 6] wl, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] present)
{)" + decoderHidden + R"(
  qm = MatMul (hidden, wq)
  row = MatMul (hidden, wl)
  q_shape = Constant <value_ints = [0, 0, 4, 6]> ()
  qr = Reshape (qm, q_shape)
  q = Transpose <perm = [0, 2, 1, 3]> (qr)
  present = Concat <axis = 1> (past, row)
  one = Constant <value_ints = [1]> ()
  begin = Constant <value_ints = [1]> ()
  end = Constant <value_ints = [5]> ()
  axis = Constant <value_ints = [3]> ()
  k = Unsqueeze (present, one)
  v = Slice (k, begin, end, axis)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, k, v)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
})";

class LayoutsTest : public testing::Test {
protected:
  static EquivalencePlan plan() { return cachePlan(); }

  static std::set<std::string> operatorsOf(const Model& model) {
    std::set<std::string> result;
    for (const Node& node : model.graph().nodes())
      result.insert(node.op().str());
    return result;
  }

  /// Growing under the same kernel, and the function bodies of the rewritten model.
  void expectEqual(const std::string& file, Tolerance tolerance) {
    DrivenModel growing = raised(file, toolkit);
    DrivenModel inPlace = rewritten(file, toolkit);
    EquivalencePlan compared = plan();
    compared.tolerance = tolerance;
    VerificationReport report = valueOrThrow(verifyModels(
        *growing.model, growing.manifest, *inPlace.model, inPlace.manifest, compared, 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_EQ(report.runs.front().plan.batch, 2);
    EXPECT_EQ(report.comparison.steps.size(), 9u);
    EXPECT_EQ(report.cacheBytesCopied, 0);
    for (const StepComparison& step : report.comparison.steps) {
      EXPECT_EQ(step.caches.size(), growing.manifest.caches.size());
      for (const TensorComparison& cache : step.caches) {
        EXPECT_GT(cache.comparison.compared, 0);
        EXPECT_TRUE(cache.comparison.bitExact) << cache.name;
      }
    }

    expectEqualBodies(inPlace, plan(), toolkit);
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(LayoutsTest, GrowingAndInPlaceAreOne) {
  for (const LayoutCase& c : cases) {
    SCOPED_TRACE(c.name);
    std::string file = writtenModel(modelText(c), toolkit, folder);
    RecoveredModel recovered = valueOrThrow(recoverModel(file, toolkit));
    ASSERT_EQ(recovered.context->sites.size(), 1u);
    const AttentionSite& site = recovered.context->sites[0];
    ASSERT_TRUE(site.isMatched()) << site.failure->str();
    EXPECT_EQ(formatted("{}@{}", site.key->layout.text(), site.key->axis), c.layout);
    DrivenModel inPlace = rewritten(file, toolkit);
    std::set<std::string> operators = operatorsOf(*inPlace.model);
    EXPECT_TRUE(operators.count("ai.kvopt::InPlaceKvSdpa"));
    EXPECT_FALSE(operators.count("ai.kvopt::Sdpa"));
    EXPECT_EQ(inPlace.manifest.caches[0].sequenceAxis, c.axis);
    // Columns that are far apart are summed in another order. Weights are at most 1, so logits of
    // 16 sums of 16 stay below 2^8, where an ulp is 2^-16.
    expectEqual(file, c.transposedKeys ? Tolerance{0x1p-16, 0} : Tolerance{0, 0});
  }
}

// Blocks without rows have extents of 0, in bodies too.
TEST_F(LayoutsTest, BodiesOfBlocksComputeTheSame) {
  for (const LayoutCase& c : cases) {
    if (std::string(c.name) == "heads_in_rows")
      continue; // blocks need an axis for the heads
    SCOPED_TRACE(c.name);
    expectEqualBodies(
        rewritten(writtenModel(modelText(c), toolkit, folder), toolkit, "capacity=20", "blocks:4"),
        plan(), toolkit);
  }
  SCOPED_TRACE("latent");
  expectEqualBodies(
      rewritten(writtenModel(latentText, toolkit, folder), toolkit, "capacity=20", "blocks:4"),
      plan(), toolkit);
}

TEST_F(LayoutsTest, OneCacheForKeysAndValues) {
  std::string file = writtenModel(latentText, toolkit, folder);
  DrivenModel inPlace = rewritten(file, toolkit);
  EXPECT_TRUE(operatorsOf(*inPlace.model).count("ai.kvopt::InPlaceLatentKvSdpa"));
  ASSERT_EQ(inPlace.manifest.caches.size(), 1u);
  EXPECT_EQ(inPlace.manifest.caches[0].role, CacheRole::Latent);
  EXPECT_EQ(inPlace.manifest.caches[0].sequenceAxis, 1);
  expectEqual(file, {0, 0});
}

} // namespace
} // namespace kvopt
