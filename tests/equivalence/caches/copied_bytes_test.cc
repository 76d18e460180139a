// The bytes that a report says a step writes to caches are those that the runtime counts.
#include "driver/forms/form_table.h"
#include "driver/rewrite/cache_bytes.h"
#include "driver/rewrite/rewrite.h"
#include "tests/equivalence/caches/short_session.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

constexpr int64_t bufferRows = 24;

/// What the last step of a short session writes for each batch row, and how long the session is
/// then.
struct Measured {
  int64_t bytes = 0;
  int64_t length = 0;
};

/// nullopt for a model that keeps nothing.
std::optional<Measured> measure(const Model& model, const Manifest& manifest,
                                const Toolkit& toolkit) {
  ShortSession made(model, manifest, bufferRows, toolkit);
  const EquivalencePlan& plan = made.plan;
  Session* const session = made.session.get();
  if (session->cacheCount() == 0 || plan.stepTokens != 1 || plan.pastRows != 0)
    return std::nullopt;
  PlannedSteps steps(plan);
  valueOrThrow(stepDecoder(*session, steps.next(plan.prompt, 0, false)));
  const int64_t writtenBefore = session->statistics().cacheBytesWritten;
  const int64_t copiedBefore = made.copied();
  valueOrThrow(stepDecoder(*session, steps.next(1, session->length(), false)));
  const int64_t written = session->statistics().cacheBytesWritten - writtenBefore;
  const int64_t copied = made.copied() - copiedBefore;
  // What a Concat makes of new rows is part of a new tensor, and not counted.
  Manifest inPlace = manifest;
  for (ManifestCache& cache : inPlace.caches)
    cache.storage = inOneBuffer(cache.storage);
  const int64_t newRows = cacheBytesPerToken(inPlace, model.graph(), 1).value_or(0);
  const bool isAllCounted = llvm::all_of(manifest.caches, [](const ManifestCache& cache) {
    return cache.isOneBuffer() || cache.update() == CacheUpdate::Blocks ||
           cache.update() == CacheUpdate::ReadOnly;
  });
  if (isAllCounted) {
    EXPECT_EQ(written / plan.batch, newRows);
  }
  Measured measured{copied / plan.batch + newRows, session->length()};
  for (size_t i = 0; i < session->cacheCount(); ++i)
    if (session->cacheInfo(i).update() == CacheUpdate::Static)
      measured.length =
          valueOrThrow(session->cacheRows(i)).view.shape[session->exportedSequenceAxis(i)];
  return measured;
}

/// Whether blocks are joined in a tensor of the graph's own, which no cache is.
bool joinsBlocks(const Manifest& manifest, const Graph& graph) {
  return cacheBytesPerToken(manifest, graph, 1) != cacheBytesPerToken(manifest, graph, 2) &&
         llvm::any_of(manifest.caches, [](const ManifestCache& cache) {
           return cache.update() == CacheUpdate::Blocks;
         });
}

class CopiedBytesTest : public testing::Test {
protected:
  void expectCounted(const Model& model, const Manifest& manifest) {
    // What runs a model in pieces reads them from files.
    if (joinsBlocks(manifest, model.graph()) || manifest.tiles)
      return;
    const std::optional<Measured> measured = measure(model, manifest, toolkit);
    if (!measured)
      return;
    ++compared;
    const auto reported = cacheBytesPerToken(manifest, model.graph(), measured->length);
    // A scatter into a cache that is not one buffer may copy it more than once.
    const bool isScattered = llvm::any_of(manifest.caches, [](const ManifestCache& cache) {
      return cache.update() == CacheUpdate::Static && !cache.isOneBuffer();
    });
    if (isScattered)
      EXPECT_LE(reported, measured->bytes);
    else
      EXPECT_EQ(reported, measured->bytes);
  }

  /// As exported, and as every target writes it.
  void expectCountedEverywhere(const std::string& path) {
    const DrivenModel exported = asExported(path, toolkit);
    expectCounted(*exported.model, exported.manifest);
    for (const auto& target : toolkit.targets.all()) {
      SCOPED_TRACE(path + " --to " + target->name().str());
      RewriteRequest request;
      request.form =
          valueOrThrow(presetForm(target->name().str() + (target->defaultSize() > 0 ? ":8" : "")));
      request.capacity = bufferRows;
      request.verification = VerificationExtent::Off;
      auto result = rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit);
      if (!result) {
        llvm::consumeError(result.takeError());
        continue; // options that this target does not take
      }
      if (const auto* model = std::get_if<RewrittenModel>(&*result))
        expectCounted(*model->model, model->manifest);
    }
  }

  Toolkit toolkit;
  size_t compared = 0;
};

TEST_F(CopiedBytesTest, OfShippedModels) {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(KVOPT_SOURCE_DIR) + "/models"))
    if (std::filesystem::exists(entry.path() / "model.onnx"))
      expectCountedEverywhere((entry.path() / "model.onnx").string());
  EXPECT_GT(compared, 30U);
}

TEST_F(CopiedBytesTest, OfTheCorpus) {
  if (!std::filesystem::is_directory(corpusFolder()))
    GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  for (const char* name :
       {"c_static_scatter-ts17-custom", "gemma3-ts17-sdpa", "deepseek_v3-ts17-sdpa",
        "lfm2-genai-fp32-cpu", "c_mla_latent-ts17-custom", "mistral_sw-genai-fp32-cpu"})
    expectCountedEverywhere((corpusFolder() / name / "model.onnx").string());
}

/// A decoder that keeps keys and values in one tensor each, of one extent.
const char* const scatteredText = R"(<ir_version: 10, opset_import: ["" : 24]>
decoder (int64[B, S] input_ids, float[B, 24, 8] keys, float[B, 24, 8] values, int64[B] write_indices,
         int64[B] nonpad_kv_seqlen, float[50, 8] table) =>
        (float[B, S, 8] logits, float[B, 24, 8] new_keys, float[B, 24, 8] new_values)
{
  h = Gather (table, input_ids)
  new_keys = TensorScatter <axis = 1> (keys, h, write_indices)
  v = Tanh (h)
  new_values = TensorScatter <axis = 1> (values, v, write_indices)
  logits = Attention <is_causal = 1, q_num_heads = 2, kv_num_heads = 2>
      (h, new_keys, new_values, , , , nonpad_kv_seqlen)
})";

TEST_F(CopiedBytesTest, AModelThatIsInPlaceAlreadyStaysAsItIs) {
  TemporaryFolder folder;
  const std::string path = writtenModel(scatteredText, toolkit, folder);
  RewriteRequest request;
  request.verification = VerificationExtent::Quick;
  request.form = valueOrThrow(presetForm("onnx24"));
  const RewriteResult result =
      valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  const auto* unchanged = std::get_if<UnchangedModel>(&result);
  ASSERT_TRUE(unchanged);
  EXPECT_EQ(unchanged->updatedBy, "TensorScatter");
  EXPECT_EQ(sizeOf(*unchanged->model).ops, unchanged->size.ops);
  ASSERT_EQ(unchanged->manifest.caches.size(), 2U);
  for (const ManifestCache& cache : unchanged->manifest.caches)
    EXPECT_TRUE(cache.isOneBuffer());
  // Codes take less room than the rows.
  request.form = valueOrThrow(presetForm("int8"));
  const RewriteResult codes =
      valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  EXPECT_FALSE(std::get_if<UnchangedModel>(&codes));
}

} // namespace
} // namespace kvopt
