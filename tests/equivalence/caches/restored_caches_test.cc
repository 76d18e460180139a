// Models that kvopt rewrote in place, rewritten again from their own files: the same form, and
// every other target.
#include "tests/equivalence/attention_forms.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/support/temporary_folder.h"

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

/// Writes kvopt's form of a model into a folder and rewrites that.
class Restored {
public:
  Restored(const std::string& path, const Toolkit& known, const std::string& options = "",
           const std::string& target = "kvopt")
      : toolkit(known), direct(rewritten(path, known, options, target)) {
    successOrThrow(exportModel(*direct.model, file));
  }

  void expectTheSameForm() {
    const DrivenModel again = rewritten(file, toolkit);
    EXPECT_FALSE(attentionsOf(*direct.model).empty());
    EXPECT_EQ(attentionsOf(*again.model), attentionsOf(*direct.model));
    EXPECT_EQ(again.model->graph().inputs().size(), direct.model->graph().inputs().size());
    EXPECT_EQ(again.manifest.json(), direct.manifest.json());
  }

  void expectEqual(const std::string& target) {
    SCOPED_TRACE(target);
    const DrivenModel other = rewritten(file, toolkit, "", target);
    VerificationPlan plan = quickVerification();
    plan.setTolerance(toleranceFor(other.model->graph(), 2));
    const VerificationReport report =
        valueOrThrow(verifyRewrite(file, *other.model, other.manifest, plan, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
  }

  const Toolkit& toolkit;
  TemporaryFolder folder;
  std::string file = folder.path("in_place.onnx");
  DrivenModel direct;
};

using RestoredCachesTest = ShippedModelTest;

TEST_P(RestoredCachesTest, GiveTheSameFormAgain) { Restored(path(), toolkit).expectTheSameForm(); }

TEST_P(RestoredCachesTest, EveryTargetTakesThem) {
  Restored model(path(), toolkit);
  for (const char* target : {"primitive", "onnx23", "onnx24", "ort-gqa"})
    model.expectEqual(target);
}

TEST_P(RestoredCachesTest, GroupedAttentionOverABufferIsTakenToo) {
  Restored model(path(), toolkit, "", "ort-gqa");
  for (const char* target : {"kvopt", "primitive", "onnx23", "onnx24", "ort-gqa"})
    model.expectEqual(target);
}

TEST_P(RestoredCachesTest, AFixedCapacityIsForgotten) {
  Restored model(path(), toolkit, "capacity=48");
  const DrivenModel wider = rewritten(model.file, toolkit, "capacity=96");
  EXPECT_EQ(wider.manifest.capacityValue, 96);
  EXPECT_EQ(rewritten(model.file, toolkit).manifest.json(),
            rewritten(path(), toolkit).manifest.json());
}

/// Manifests come with the file, and may say anything.
TEST_P(RestoredCachesTest, AManifestThatDoesNotFitIsRefused) {
  TemporaryFolder folder;
  const DrivenModel inPlace = rewritten(path(), toolkit);
  auto isRefused = [&](void (*spoil)(Manifest&)) {
    Manifest manifest = inPlace.manifest;
    spoil(manifest);
    inPlace.model->setMetadata(manifestKey, manifest.json());
    const std::string file = folder.path("spoilt.onnx");
    successOrThrow(exportModel(*inPlace.model, file));
    EXPECT_THROW(rewritten(file, toolkit, "", "primitive"), std::runtime_error);
  };
  isRefused([](Manifest& manifest) { manifest.caches[0].sequenceAxis = 3; });
  isRefused([](Manifest& manifest) { manifest.caches[1].storage = GrowingCache(); });
  isRefused([](Manifest& manifest) { manifest.caches.pop_back(); });
  isRefused([](Manifest& manifest) { manifest.caches[0].past = manifest.lengths[0].input; });
  isRefused([](Manifest& manifest) { manifest.lengths[0].input = manifest.caches[0].past; });
  isRefused([](Manifest& manifest) { manifest.lengths[0].feed = LengthFeed::TotalLength; });
}

TEST_P(RestoredCachesTest, OtherOperatorsLengthsAreRefused) {
  TemporaryFolder folder;
  for (const char* target : {"onnx24", "int8"}) {
    const std::string file = folder.path(std::string(target) + ".onnx");
    successOrThrow(exportModel(*rewritten(path(), toolkit, "", target).model, file));
    EXPECT_THROW(rewritten(file, toolkit), std::runtime_error) << target;
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, RestoredCachesTest, shippedModels(), shippedModelName);

using RestoredCorpusTest = CorpusTest;

TEST_F(RestoredCorpusTest, EveryModelGivesTheSameFormAgain) {
  Toolkit toolkit;
  unsigned compared = 0;
  for (const std::string& name : sampleOf(foldersWith(corpusFolder(), "model.onnx"))) {
    if (refusedInPlace().count(name) != 0)
      continue; // there is no form in place
    if (name == "llama_gqa-merged17-eager") {
      EXPECT_THROW(
          Restored((corpusFolder() / name / "model.onnx").string(), toolkit).expectTheSameForm(),
          std::runtime_error)
          << "it has branches";
      continue;
    }
    SCOPED_TRACE(name);
    const std::string path = (corpusFolder() / name / "model.onnx").string();
    if (!rewritten(path, toolkit).manifest.sharesBuffers())
      continue;
    Restored model(path, toolkit);
    model.expectTheSameForm();
    ++compared;
  }
  EXPECT_GE(compared, leastInSample(50));
}

} // namespace
} // namespace kvopt
