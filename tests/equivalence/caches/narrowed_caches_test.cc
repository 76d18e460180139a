// Decoders whose caches are rewritten with rows of 16 bits.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/corpus.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

class NarrowedCaches : public testing::Test {
protected:
  RewriteResult written(const std::string& path, const std::string& target, RowKind rows) {
    RewriteRequest request;
    request.verification = VerificationExtent::Quick;
    request.form = valueOrThrow(presetForm(target));
    request.form.rows = rows;
    request.hiddenRows = target == "ring" ? HiddenRows::Undefined : HiddenRows::Exact;
    if (target.starts_with("onnx24") || target.starts_with("blocks"))
      request.capacity = 64;
    return valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(NarrowedCaches, HoldRoundedRowsInEveryTargetThatReadsThem) {
  for (const char* model : {"gpt2-dynamo18-eager", "llama_gqa-ts14-eager", "qwen2-dynamo23-sdpa"})
    for (const char* target : {"kvopt", "blocks:8", "blocks-plain:8", "primitive"})
      for (const auto& [dtype, element] : {std::pair(RowKind::Float16, ElementType::Float16),
                                           {RowKind::BFloat16, ElementType::BFloat16}}) {
        SCOPED_TRACE(formatted("{} --to {} --rows {}", model, target, wordOf(dtype)));
        const RewriteResult result = written(modelFolder(model) + "/model.onnx", target, dtype);
        const auto* narrowed = std::get_if<RewrittenModel>(&result);
        ASSERT_TRUE(narrowed) << std::get<RefusedModel>(result).message;
        for (const ManifestCache& cache : narrowed->manifest.caches) {
          EXPECT_EQ(cache.dtype, element);
          EXPECT_EQ(cache.exportedDtype, ElementType::Float);
        }
        for (const ManifestCache& cache : narrowed->exported.caches)
          EXPECT_EQ(cache.dtype, ElementType::Float);
        ASSERT_TRUE(narrowed->verification);
        const VerificationReport& report = runsOf(*narrowed);
        EXPECT_TRUE(report.equal()) << verificationSummary(report);
        ASSERT_TRUE(report.rounding.has_value());
        EXPECT_EQ(report.rounding->caches, narrowed->manifest.caches.size());
        EXPECT_GT(report.rounding->deviation.largest, 0);
        EXPECT_GT(report.rounding->deviation.tokens, 0);
      }
}

TEST_F(NarrowedCaches, AreComparedAfterTheyAreWritten) {
  const std::string path = modelFolder("llama_gqa-ts14-eager") + "/model.onnx";
  const RewriteResult result = written(path, "kvopt", RowKind::Float16);
  const std::string file = folder.path("narrow.onnx");
  successOrThrow(exportModel(*std::get<RewrittenModel>(result).model, file));
  const PreparedModel original = valueOrThrow(prepareModel(path, toolkit));
  const PreparedModel narrow = valueOrThrow(prepareModel(file, toolkit));
  const VerificationReport report =
      valueOrThrow(verifyModels(*original.model, original.manifest, *narrow.model, narrow.manifest,
                                quickVerification(), 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  EXPECT_TRUE(report.rounding.has_value());
  // Another target takes them as they are.
  const RewriteResult again = written(file, "primitive", RowKind::Same);
  const auto* other = std::get_if<RewrittenModel>(&again);
  ASSERT_TRUE(other) << std::get<RefusedModel>(again).message;
  EXPECT_EQ(other->manifest.caches.front().exportedDtype, ElementType::Float);
}

TEST_F(NarrowedCaches, OfAModelThatComputesSomethingElseAreFoundOut) {
  const std::string path = modelFolder("llama_gqa-ts14-eager") + "/model.onnx";
  RewriteResult result = written(path, "kvopt", RowKind::Float16);
  auto& narrowed = std::get<RewrittenModel>(result);
  unsigned scaled = 0;
  for (Node& node : narrowed.model->graph().nodes())
    if (node.op() == OpName("ai.kvopt::InPlaceKvSdpa")) {
      node.setAttribute("scale", Attribute::ofFloat(0.3f));
      ++scaled;
    }
  ASSERT_GT(scaled, 0U);
  const PreparedModel original = valueOrThrow(prepareModel(path, toolkit));
  const VerificationReport report =
      valueOrThrow(verifyModels(*original.model, original.manifest, *narrowed.model,
                                narrowed.manifest, quickVerification(), 1, toolkit));
  EXPECT_FALSE(report.equal());
}

TEST_F(NarrowedCaches, AreRefusedWhereNothingIsRounded) {
  const std::string path = modelFolder("llama_gqa-ts14-eager") + "/model.onnx";
  RewriteRequest request;
  request.verification = VerificationExtent::Quick;
  request.form = valueOrThrow(presetForm("onnx24"));
  request.form.rows = RowKind::Float16;
  auto both = rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit);
  ASSERT_FALSE(static_cast<bool>(both));
  EXPECT_EQ(takeDiagnostic(both.takeError()).kind, Diagnostic::Kind::Usage);
  const RewriteResult first = written(path, "kvopt", RowKind::Float16);
  const std::string file = folder.path("narrow.onnx");
  successOrThrow(exportModel(*std::get<RewrittenModel>(first).model, file));
  const RewriteResult twice = written(file, "kvopt", RowKind::Float16);
  EXPECT_TRUE(std::holds_alternative<RefusedModel>(twice));
}

TEST_F(NarrowedCaches, OfTheCorpusComputeTheSameButForRounding) {
  const auto models = sampleOf(corpusModels());
  if (models.empty())
    GTEST_SKIP() << "needs KVOPT_CORPUS";
  unsigned narrowed = 0;
  for (const std::string& path : models)
    for (const char* target : {"kvopt", "latent", "ring"}) {
      const RewriteResult result = written(path, target, RowKind::Float16);
      const auto* model = std::get_if<RewrittenModel>(&result);
      if (!model)
        continue;
      SCOPED_TRACE(path + " --to " + target);
      ++narrowed;
      if (!model->verification || model->verification->equal())
        continue;
      // What differs without rounding is not a matter of rounding.
      const RewriteResult exact = written(path, target, RowKind::Same);
      const auto* unrounded = std::get_if<RewrittenModel>(&exact);
      EXPECT_TRUE(unrounded && unrounded->verification && !unrounded->verification->equal() &&
                  runsOf(*model).rounding && runsOf(*model).rounding->equal())
          << model->verification->summary(false);
    }
  EXPECT_GE(narrowed, leastInSample(50));
}

} // namespace
} // namespace kvopt
