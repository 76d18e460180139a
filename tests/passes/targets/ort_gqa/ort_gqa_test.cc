// Models as the target ort-gqa writes them: what is in them, what they compute, what a step writes.
#include "ir/text/reader.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/support/temporary_folder.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

class OrtGqaTest : public ShippedModelTest {
protected:
  DrivenModel grouped() const { return rewritten(path(), toolkit, "", "ort-gqa"); }
};

TEST_P(OrtGqaTest, NothingOfKvoptIsLeft) {
  DrivenModel model = grouped();
  unsigned attentions = 0;
  for (const Node& node : model.model->graph().nodes()) {
    EXPECT_NE(node.op().domain(), "ai.kvopt") << node.describe();
    attentions += node.is("com.microsoft::GroupQueryAttention");
  }
  EXPECT_EQ(attentions, GetParam().sites);
  EXPECT_TRUE(model.model->functions.empty());
  EXPECT_EQ(model.model->opsets.count("ai.kvopt"), 0u);
  EXPECT_EQ(model.manifest.contract, CacheUpdate::InPlace);
  EXPECT_EQ(model.manifest.chunkBatch, 1);
  // Shipped models have a padding mask, from which the lengths are computed.
  EXPECT_TRUE(model.manifest.lengths.empty());
  DrivenModel exported = asExported(path(), toolkit);
  EXPECT_EQ(model.model->graph().inputs().size(), exported.model->graph().inputs().size());
}

TEST_P(OrtGqaTest, AStepWritesItsOwnRowsWhereThePastLies) {
  DrivenModel model = grouped();
  SessionOptions options;
  options.batch = 2;
  options.capacity = 60;
  auto session = openSession(model, toolkit.runner->kernels(), options);
  TokenStream tokens(*model.model, options.batch);
  std::vector<const std::byte*> places;
  for (size_t i = 0; i < session->cacheCount(); ++i)
    places.push_back(session->cacheBuffer(i).data);
  for (int64_t added : {33, 1, 1, 7, 1}) {
    tokens.feed(*session, added);
    int64_t expected = 0;
    for (size_t i = 0; i < session->cacheCount(); ++i) {
      const TensorView buffer = session->cacheBuffer(i);
      EXPECT_EQ(buffer.data, places[i]);
      expected += buffer.byteSize() / options.capacity * added;
    }
    EXPECT_EQ(session->statistics().lastRun.cacheBytesWritten, expected);
    EXPECT_EQ(session->statistics().lastRun.inPlaceBytesCopied, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, OrtGqaTest, shippedModels(), shippedModelName);

struct GqaLayoutCase {
  const char* keys;                 ///< type of the past of keys
  int axis;                         ///< of the Concat
  std::vector<int64_t> fresh;       ///< order of the axes of [B,S,2,8] in a cache
  std::vector<int64_t> read;        ///< and back to [B,2,T,8]
  std::vector<int64_t> permutation; ///< as the manifest has it
};

/// A decoder without a mask, whose keys' cache is of one layout and whose values' is [B,P,2,8].
std::string layoutText(const GqaLayoutCase& c) {
  auto list = [](llvm::ArrayRef<int64_t> axes) {
    return formatted("[{}, {}, {}, {}]", axes[0], axes[1], axes[2], axes[3]);
  };
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float{} past_k, float[B, P, 2, 8] past_v, float[1, 1, 32] table,
         float[1, 32, 32] wq, float[1, 32, 16] wk, float[1, 32, 16] wv, float[1, 32, 10] wo)
  => (float[B, S, 10] logits, float[] present_k, float[] present_v)
{{
  last = Constant <value_ints = [2]> ()
  ids = Cast <to = 1> (input_ids)
  extents = Shape (past_v)
  one = Constant <value = int64 {{1}}> ()
  earlier = Gather (extents, one)
  shift = Cast <to = 1> (earlier)
  column = Unsqueeze (ids, last)
  moved = Add (column, shift)
  angle = Mul (moved, table)
  hidden = Sin (angle)
  qm = MatMul (hidden, wq)
  km = MatMul (hidden, wk)
  vm = MatMul (hidden, wv)
  q_shape = Constant <value_ints = [0, 0, 4, 8]> ()
  kv_shape = Constant <value_ints = [0, 0, 2, 8]> ()
  qr = Reshape (qm, q_shape)
  q = Transpose <perm = [0, 2, 1, 3]> (qr)
  kr = Reshape (km, kv_shape)
  k = Transpose <perm = {}> (kr)
  v = Reshape (vm, kv_shape)
  present_k = Concat <axis = {}> (past_k, k)
  present_v = Concat <axis = 1> (past_v, v)
  keys = Transpose <perm = {}> (present_k)
  values = Transpose <perm = [0, 2, 1, 3]> (present_v)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1, window = 9> (q, keys, values)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 32]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
}})",
                   c.keys, list(c.fresh), c.axis, list(c.read));
}

TEST(OrtGqaLayouts, BecomeTheOperatorsOwn) {
  Toolkit toolkit;
  TemporaryFolder folder;
  const std::string file = folder.path("model.onnx");
  for (const GqaLayoutCase& c :
       {GqaLayoutCase{"[B, P, 2, 8]", 1, {0, 1, 2, 3}, {0, 2, 1, 3}, {0, 2, 1, 3}},
        GqaLayoutCase{"[P, B, 2, 8]", 0, {1, 0, 2, 3}, {1, 2, 0, 3}, {1, 2, 0, 3}},
        GqaLayoutCase{"[B, 2, 8, P]", 3, {0, 2, 3, 1}, {0, 1, 3, 2}, {0, 1, 3, 2}},
        GqaLayoutCase{"[B, 2, P, 8]", 2, {0, 2, 1, 3}, {0, 1, 2, 3}, {}}}) {
    SCOPED_TRACE(c.keys);
    auto text = valueOrThrow(readText(layoutText(c), toolkit.ops));
    successOrThrow(inferShapes(text->graph()));
    successOrThrow(exportModel(*text, file));
    DrivenModel growing = raised(file, toolkit);
    DrivenModel grouped = rewritten(file, toolkit, "", "ort-gqa");
    ASSERT_EQ(grouped.manifest.caches.size(), 2u);
    EXPECT_EQ(grouped.manifest.caches[0].permutation, c.permutation);
    EXPECT_EQ(grouped.manifest.caches[1].permutation, std::vector<int64_t>({0, 2, 1, 3}));
    for (const ManifestCache& cache : grouped.manifest.caches) {
      EXPECT_EQ(cache.sequenceAxis, 2);
      EXPECT_EQ(cache.shape[1], ManifestExtent(int64_t{2}));
      EXPECT_EQ(cache.shape[3], ManifestExtent(int64_t{8}));
    }
    // There is no padding: both lengths are inputs, and the past's length follows from them.
    ASSERT_EQ(grouped.manifest.lengths.size(), 2u);
    EXPECT_EQ(grouped.manifest.lengths[0].feed, LengthFeed::TotalLengthPerBatchMinusOne);
    EXPECT_EQ(grouped.manifest.lengths[1].feed, LengthFeed::TotalLength);
    EquivalencePlan plan;
    plan.prompt = 5;
    plan.chunks = {3, 1};
    plan.decodeSteps = 12;
    plan.vocabulary = 50;
    plan.tolerance = {1e-4, 0};
    VerificationReport report = valueOrThrow(verifyModels(
        *growing.model, growing.manifest, *grouped.model, grouped.manifest, plan, 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_EQ(report.comparison.steps.size(), 15u);
    EXPECT_EQ(report.cacheBytesCopied, 0);
    for (const StepComparison& step : report.comparison.steps)
      EXPECT_EQ(step.caches.size(), 2u);
  }
}

} // namespace
} // namespace kvopt
