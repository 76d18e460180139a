// Decoders whose keys and values are expanded from rows of fewer columns before they are cached.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/caches/cache_plan.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/corpus.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// How new keys `k` [B,4,S,5] and values `v` [B,4,S,4] are made of the compressed rows `c` [B,S,6]
/// and the rows `e` [B,1,S,2].
struct LatentSpelling {
  const char* name;
  const char* text;
  int64_t width; ///< of a compressed row
};

const LatentSpelling latentSpellings[] = {
    {"OneProductForBoth", R"(
  both = MatMul (c, w28)
  both_heads = Reshape (both, heads_of_7)
  both_first = Transpose <perm = [0, 2, 1, 3]> (both_heads)
  k_part = Slice (both_first, l0, l3, l3)
  v = Slice (both_first, l3, l7, l3)
  everywhere = Expand (e, four_heads)
  k = Concat <axis = -1> (k_part, everywhere))",
     8},
    {"AProductForEachAndSharedColumnsFirst", R"(
  k_product = MatMul (c, w12)
  k_heads = Reshape (k_product, heads_of_3)
  k_part = Transpose <perm = [0, 2, 1, 3]> (k_heads)
  v_product = MatMul (c, w16)
  v_heads = Reshape (v_product, heads_of_4)
  v = Transpose <perm = [0, 2, 1, 3]> (v_heads)
  everywhere = Tile (e, tiled)
  k = Concat <axis = 3> (everywhere, k_part))",
     8},
    {"WidthBeforeHeadsAndNothingShared", R"(
  k_product = MatMul (c, w20)
  k_heads = Reshape (k_product, five_of_heads)
  k = Transpose <perm = [0, 3, 1, 2]> (k_heads)
  turned = Transpose <perm = [1, 0]> (w16_turned)
  v_product = MatMul (c, turned)
  v_heads = Reshape (v_product, heads_of_4)
  v = Transpose <perm = [0, 2, 1, 3]> (v_heads))",
     6},
    {"KeysInThreeParts", R"(
  one_product = MatMul (c, w4)
  one_heads = Reshape (one_product, heads_of_1)
  one = Transpose <perm = [0, 2, 1, 3]> (one_heads)
  two_product = MatMul (c, w8)
  two_heads = Reshape (two_product, heads_of_2)
  two = Transpose <perm = [0, 2, 1, 3]> (two_heads)
  v_product = MatMul (c, w16)
  v_heads = Reshape (v_product, heads_of_4)
  v = Transpose <perm = [0, 2, 1, 3]> (v_heads)
  everywhere = Expand (e, four_heads)
  k = Concat <axis = 3> (one, everywhere, two))",
     8},
};

std::string weightList(int64_t rows, int64_t columns, int64_t seed) {
  std::string list;
  for (int64_t i = 0; i < rows * columns; ++i)
    list += formatted("{}{}", i == 0 ? "" : ", ", ((i * 37 + seed) % 61 - 30) / 64.0);
  return formatted("{{{}}}", list);
}

std::string compressibleText(const std::string& caches, const std::string& results = "") {
  return formatted(
      R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, 4, P, 5] past_k, float[B, 4, P, 4] past_v,
         float[1, 1, 16] table, float[1, 16, 10] wo, float[6, 28] given)
  => (float[B, S, 10] logits, float[B, 4, T, 5] all_k, float[B, 4, T, 4] all_v{outputs})
<float[16, 6] wc = {wc}, float[16, 6] wd = {wd}, float[16, 2] we = {we}, float[16, 20] wq = {wq}, float[6, 28] w28 = {w28},
 float[6, 12] w12 = {w12}, float[6, 16] w16 = {w16}, float[16, 6] w16_turned = {turned}, float[6, 20] w20 = {w20},
 float[6, 4] w4 = {w4}, float[6, 8] w8 = {w8}, float[28] bias = {bias}, int64[4] heads_of_7 = {{0, 0, 4, 7}},
 int64[4] heads_of_5 = {{0, 0, 4, 5}}, int64[4] heads_of_4 = {{0, 0, 4, 4}}, int64[4] heads_of_3 = {{0, 0, 4, 3}},
 int64[4] heads_of_2 = {{0, 0, 4, 2}}, int64[4] heads_of_1 = {{0, 0, 4, 1}}, int64[4] five_of_heads = {{0, 0, 5, 4}},
 int64[4] four_heads = {{1, 4, 1, 1}}, int64[4] tiled = {{1, 4, 1, 1}}, int64[1] l0 = {{0}}, int64[1] l1 = {{1}},
 int64[1] l3 = {{3}}, int64[1] l7 = {{7}}>
{{
{hidden}
  c = MatMul (hidden, wc)
  d = MatMul (hidden, wd)
  e_rows = MatMul (hidden, we)
  e_turned = Cos (e_rows)
  e = Unsqueeze (e_turned, l1)
  q_product = MatMul (hidden, wq)
  q_heads = Reshape (q_product, heads_of_5)
  q = Transpose <perm = [0, 2, 1, 3]> (q_heads)
{caches}
  all_k = Concat <axis = 2> (past_k, k)
  all_v = Concat <axis = 2> (past_v, v)
  keys = Identity (all_k)
  values = Identity (all_v)
{results}}})",
      named("wc", weightList(16, 6, 1)), named("wd", weightList(16, 6, 5)),
      named("we", weightList(16, 2, 9)), named("wq", weightList(16, 20, 3)),
      named("w28", weightList(6, 28, 7)), named("w12", weightList(6, 12, 11)),
      named("w16", weightList(6, 16, 13)), named("turned", weightList(16, 6, 17)),
      named("w20", weightList(6, 20, 19)), named("w4", weightList(6, 4, 23)),
      named("w8", weightList(6, 8, 29)), named("bias", weightList(1, 28, 31)),
      named("hidden", decoderHidden), named("caches", caches),
      named("outputs", results.empty() ? "" : ", float[] more"),
      named("results", decoderResults + results));
}

class LatentCaches : public testing::Test {
protected:
  /// Rewritten for a target, compressed before.
  RewrittenModel compressed(const std::string& path, const char* target,
                            std::optional<int64_t> capacity) {
    RewriteRequest request;
    request.form = valueOrThrow(presetForm(target));
    request.form.isLatent = true;
    request.capacity = capacity;
    request.verification = VerificationExtent::Off;
    auto result = valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
    if (auto* refused = std::get_if<RefusedModel>(&result))
      throw std::runtime_error(refused->message);
    return std::move(std::get<RewrittenModel>(result));
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(LatentCaches, HoldRowsOfFewerColumnsInEveryTarget) {
  for (const LatentSpelling& spelling : latentSpellings) {
    const std::string path = writtenModel(compressibleText(spelling.text), toolkit, folder);
    const DrivenModel exported = asExported(path, toolkit);
    for (const char* target : {"latent", "kvopt", "onnx24", "blocks:4", "primitive"}) {
      SCOPED_TRACE(formatted("{} --to {}", spelling.name, target));
      const RewrittenModel latent = compressed(path, target, 32);
      ASSERT_EQ(latent.manifest.caches.size(), 1U);
      const ManifestCache& cache = latent.manifest.caches.front();
      EXPECT_EQ(cache.role, CacheRole::Latent);
      EXPECT_EQ(cache.replaces,
                (std::vector<ManifestReplacement>{{"past_k", "all_k"}, {"past_v", "all_v"}}));
      EXPECT_EQ(std::get<int64_t>(cache.shape[1]), 1);
      EXPECT_EQ(std::get<int64_t>(cache.shape[3]), spelling.width);
      EXPECT_EQ(latent.exported.caches.size(), 2U);
      for (int64_t batch : {1, 2}) {
        EquivalencePlan plan = cachePlan({1e-4, 0});
        plan.batch = batch;
        const VerificationReport report = valueOrThrow(verifyModels(
            *exported.model, exported.manifest, *latent.model, latent.manifest, plan, 1, toolkit));
        EXPECT_TRUE(report.equal()) << verificationSummary(report);
        EXPECT_EQ(report.comparison.steps.size(), 9U);
      }
    }
  }
}

TEST_F(LatentCaches, StayWhatTheyAreInAnotherTarget) {
  const std::string path = writtenModel(compressibleText(latentSpellings[0].text), toolkit, folder);
  const RewrittenModel first = compressed(path, "latent", std::nullopt);
  const std::string file = folder.path("first.onnx");
  successOrThrow(exportModel(*first.model, file));
  const DrivenModel second = rewritten(file, toolkit, "capacity=32", "onnx24");
  ASSERT_EQ(second.manifest.caches.size(), 1U);
  EXPECT_EQ(second.manifest.caches.front().replaces, first.manifest.caches.front().replaces);
  const DrivenModel exported = asExported(path, toolkit);
  const VerificationReport report =
      valueOrThrow(verifyModels(*exported.model, exported.manifest, *second.model, second.manifest,
                                cachePlan({1e-4, 0}), 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
}

TEST_F(LatentCaches, HoldRoundedRows) {
  const std::string path = writtenModel(compressibleText(latentSpellings[0].text), toolkit, folder);
  RewriteRequest request;
  request.verification = VerificationExtent::Quick;
  request.form = valueOrThrow(presetForm("latent"));
  request.form.rows = RowKind::Float16;
  auto result = valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  const auto* latent = std::get_if<RewrittenModel>(&result);
  ASSERT_TRUE(latent) << std::get<RefusedModel>(result).message;
  ASSERT_EQ(latent->manifest.caches.size(), 1U);
  EXPECT_EQ(latent->manifest.caches.front().dtype, ElementType::Float16);
  EXPECT_EQ(latent->manifest.caches.front().replaces.size(), 2U);
  ASSERT_TRUE(latent->verification);
  EXPECT_TRUE(latent->verification->equal()) << latent->verification->summary(false);
  ASSERT_TRUE(runsOf(*latent).rounding.has_value());
  EXPECT_EQ(runsOf(*latent).rounding->caches, 1U);
}

TEST_F(LatentCaches, AreQuantized) {
  const std::string path = writtenModel(compressibleText(latentSpellings[0].text), toolkit, folder);
  const RewrittenModel latent = compressed(path, "int8", 32);
  ASSERT_EQ(latent.manifest.caches.size(), 2U);
  const ManifestCache& codes = latent.manifest.caches[0];
  EXPECT_EQ(codes.role, CacheRole::Latent);
  EXPECT_EQ(codes.dtype, ElementType::Int8);
  EXPECT_EQ(codes.replaces.size(), 2U);
  EXPECT_EQ(latent.manifest.caches[1].role, CacheRole::LatentScale);
  const DrivenModel exported = asExported(path, toolkit);
  const VerificationReport report =
      valueOrThrow(verifyModels(*exported.model, exported.manifest, *latent.model, latent.manifest,
                                cachePlan({1e-4, 0}), 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  ASSERT_TRUE(report.quantization.has_value());
  EXPECT_TRUE(report.quantization->rowsIdentical);
  EXPECT_EQ(report.quantization->sites, 1U);
  EXPECT_GT(report.quantization->deviation.largest, 0);
}

class SavedLatentCaches : public LatentCaches, public testing::WithParamInterface<const char*> {};

TEST_P(SavedLatentCaches, GoOn) {
  const std::string path = writtenModel(compressibleText(latentSpellings[0].text), toolkit, folder);
  const RewrittenModel latent = compressed(path, GetParam(), 32);
  DrivenModel driven;
  driven.manifest = latent.manifest;
  const std::string file = folder.path("latent.onnx");
  successOrThrow(exportModel(*latent.model, file));
  driven.model = valueOrThrow(importModel(file, toolkit.ops));
  successOrThrow(inferShapes(driven.model->graph()));
  auto first = openSession(driven, toolkit.runner->kernels(), {});
  auto second = openSession(driven, toolkit.runner->kernels(), {});
  stepAlike(*first, 7);
  successOrThrow(first->save(folder.path("rows.kvc")));
  successOrThrow(second->load(folder.path("rows.kvc")));
  const StepResult expected = stepAlike(*first, 2);
  const StepResult result = stepAlike(*second, 2);
  const auto compared = valueOrThrow(compareTensors(
      expected.outputs[0].tensor.view, result.outputs[0].tensor.view, Tolerance{0, 0}));
  EXPECT_TRUE(compared.isWithin()) << compared.maxAbs;
  EXPECT_GT(compared.compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, SavedLatentCaches, testing::Values("latent", "int8"));

/// How new keys `k` [B,1,S,8] and values `v` are made of `c` [B,S,6] and `e` [B,1,S,2].
const std::pair<const char*, const char*> columnSpellings[] = {
    {"SlicedFromKeys", R"(
  c_rows = Unsqueeze (c, l1)
  k = Concat <axis = 3> (c_rows, e)
  v = Slice (k, l0, l6, l3))"},
    {"JoinedIntoKeys", R"(
  v = Unsqueeze (c, l1)
  k = Concat <axis = 3> (v, e))"},
    {"BehindTheSharedColumns", R"(
  c_rows = Unsqueeze (c, l1)
  k = Concat <axis = -1> (e, c_rows)
  v = Slice (k, l2, l8, l3))"},
};

std::string columnsText(const std::string& caches) {
  return formatted(
      R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, 1, P, 8] past_k, float[B, 1, P, 6] past_v, float[1, 1, 16] table)
  => (float[B, S, 24] logits, float[B, 1, T, 8] all_k, float[B, 1, T, 6] all_v)
<float[16, 6] wc = {wc}, float[16, 2] we = {we}, float[16, 32] wq = {wq}, int64[4] heads_of_8 = {{0, 0, 4, 8}},
 int64[3] all_heads = {{0, 0, 24}}, int64[1] l0 = {{0}}, int64[1] l1 = {{1}}, int64[1] l2 = {{2}}, int64[1] l3 = {{3}},
 int64[1] l6 = {{6}}, int64[1] l8 = {{8}}>
{{
{hidden}
  c = MatMul (hidden, wc)
  e_rows = MatMul (hidden, we)
  e_turned = Cos (e_rows)
  e = Unsqueeze (e_turned, l1)
  q_product = MatMul (hidden, wq)
  q_heads = Reshape (q_product, heads_of_8)
  q = Transpose <perm = [0, 2, 1, 3]> (q_heads)
{caches}
  all_k = Concat <axis = 2> (past_k, k)
  all_v = Concat <axis = 2> (past_v, v)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, all_k, all_v)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  logits = Reshape (ot, all_heads)
}})",
      named("wc", weightList(16, 6, 1)), named("we", weightList(16, 2, 9)),
      named("wq", weightList(16, 32, 3)), named("hidden", decoderHidden), named("caches", caches));
}

TEST_F(LatentCaches, HoldValuesThatAreColumnsOfKeys) {
  for (const auto& [name, text] : columnSpellings) {
    const std::string path = writtenModel(columnsText(text), toolkit, folder);
    const DrivenModel exported = asExported(path, toolkit);
    for (const char* target : {"latent", "onnx24", "primitive"}) {
      SCOPED_TRACE(formatted("{} --to {}", name, target));
      const RewrittenModel latent = compressed(path, target, 32);
      ASSERT_EQ(latent.manifest.caches.size(), 1U);
      EXPECT_EQ(latent.manifest.caches.front().past, "past_k");
      EXPECT_EQ(std::get<int64_t>(latent.manifest.caches.front().shape[3]), 8);
      const VerificationReport report =
          valueOrThrow(verifyModels(*exported.model, exported.manifest, *latent.model,
                                    latent.manifest, cachePlan({1e-4, 0}), 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      EXPECT_EQ(report.comparison.steps.size(), 9U);
      EXPECT_EQ(report.comparison.steps.front().caches.size(), 1U); // the keys'
    }
  }
}

TEST_F(LatentCaches, AreNoColumnsOfOtherKeys) {
  const std::string path = writtenModel(columnsText(R"(
  c_rows = Unsqueeze (c, l1)
  k = Concat <axis = 3> (c_rows, e)
  turned = Cos (c_rows)
  v = Identity (turned))"),
                                        toolkit, folder);
  RewriteRequest request;
  request.verification = VerificationExtent::Quick;
  request.form = valueOrThrow(presetForm("latent"));
  auto result = valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  ASSERT_TRUE(std::holds_alternative<RefusedModel>(result));
  EXPECT_EQ(reasonName(std::get<RefusedModel>(result).sites.front().failure.code), "not-low-rank");
}

struct OtherRows {
  const char* name;
  std::string text;
  const char* results = "";
};

TEST_F(LatentCaches, AreNoFunctionsOfAnythingElse) {
  const std::string values = R"(
  v_product = MatMul (c, w16)
  v_heads = Reshape (v_product, heads_of_4)
  v = Transpose <perm = [0, 2, 1, 3]> (v_heads)
  everywhere = Expand (e, four_heads))";
  const std::string keys = R"(
  k_product = MatMul (c, w12)
  k_heads = Reshape (k_product, heads_of_3)
  k_part = Transpose <perm = [0, 2, 1, 3]> (k_heads))";
  const std::string joined = R"(
  k = Concat <axis = 3> (k_part, everywhere))";
  const OtherRows others[] = {
      {"ValuesOfOtherRows", R"(
  v_product = MatMul (d, w16)
  v_heads = Reshape (v_product, heads_of_4)
  v = Transpose <perm = [0, 2, 1, 3]> (v_heads)
  everywhere = Expand (e, four_heads))" +
                                keys + joined},
      {"WeightsThatAreAnInput", R"(
  both = MatMul (c, given)
  both_heads = Reshape (both, heads_of_7)
  both_first = Transpose <perm = [0, 2, 1, 3]> (both_heads)
  k_part = Slice (both_first, l0, l3, l3)
  v = Slice (both_first, l3, l7, l3)
  everywhere = Expand (e, four_heads))" +
                                    joined},
      {"WithABias", R"(
  product = MatMul (c, w28)
  both = Add (product, bias)
  both_heads = Reshape (both, heads_of_7)
  both_first = Transpose <perm = [0, 2, 1, 3]> (both_heads)
  k_part = Slice (both_first, l0, l3, l3)
  v = Slice (both_first, l3, l7, l3)
  everywhere = Expand (e, four_heads))" +
                        joined},
      {"RotatedForEachHead", values + keys + R"(
  turned_part = Cos (k_part)
  k = Concat <axis = 3> (turned_part, everywhere))"},
      {"OfRowsThatAreAsLong", R"(
  long_rows = Concat <axis = 2> (hidden, hidden, c, d)
  long_w = Concat <axis = 0> (wq, wq, w20, w20)
  k_product = MatMul (long_rows, long_w)
  k_heads = Reshape (k_product, heads_of_5)
  k = Transpose <perm = [0, 2, 1, 3]> (k_heads)
  long_v = Slice (long_w, l0, sixteen, l1)
  v_product = MatMul (long_rows, long_v)
  v_heads = Reshape (v_product, heads_of_4)
  v = Transpose <perm = [0, 2, 1, 3]> (v_heads))"},
      {"ReadByAnother", values + keys + joined, "  more = ReduceMean <keepdims = 0> (all_k)\n"},
  };
  for (const OtherRows& other : others) {
    SCOPED_TRACE(other.name);
    std::string text = compressibleText(other.text, other.results);
    text.replace(text.find("int64[1] l0 ="), 13, "int64[1] sixteen = {16}, int64[1] l0 =");
    const std::string path = writtenModel(text, toolkit, folder);
    RewriteRequest request;
    request.verification = VerificationExtent::Quick;
    request.form = valueOrThrow(presetForm("latent"));
    auto result = valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
    const auto* refused = std::get_if<RefusedModel>(&result);
    ASSERT_TRUE(refused);
    ASSERT_EQ(refused->sites.size(), 1U) << refused->message;
    const llvm::StringRef code = reasonName(refused->sites.front().failure.code);
    EXPECT_EQ(code, llvm::StringRef(other.results).empty() ? "not-low-rank" : "cache-escapes")
        << refused->sites.front().failure.str();
  }
}

TEST(LatentCorpus, ExpandedLatentAttentionIsCompressed) {
  const auto models = corpusModels();
  if (models.empty())
    GTEST_SKIP() << "needs KVOPT_CORPUS";
  Toolkit toolkit;
  unsigned compressed = 0;
  for (const std::string& path : models) {
    RewriteRequest request;
    request.verification = VerificationExtent::Quick;
    request.form = valueOrThrow(presetForm("latent"));
    auto result = valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
    const auto* latent = std::get_if<RewrittenModel>(&result);
    if (!latent || llvm::none_of(latent->manifest.caches, [](const ManifestCache& cache) {
          return !cache.replaces.empty();
        }))
      continue;
    SCOPED_TRACE(path);
    ++compressed;
    ASSERT_TRUE(latent->verification);
    EXPECT_TRUE(latent->verification->equal());
  }
  EXPECT_GE(compressed, 4U);
}

} // namespace
} // namespace kvopt
