// Models that kvopt rewrote in place, rewritten again from their own files: the same form, and
// every other target.
#include "tests/equivalence/attention_forms.h"
#include "tests/equivalence/corpus.h"
#include "tests/ir/temporary_folder.h"

namespace kvopt {
namespace {

/// Writes kvopt's form of a model into a folder and rewrites that.
class Restored {
public:
  Restored(const std::string& path, const Registries& known, const std::string& options = "")
      : registries(known), direct(rewritten(path, known, options)) {
    successOrThrow(exportModel(*direct.model, file));
  }

  void expectTheSameForm() {
    const DrivenModel again = rewritten(file, registries);
    EXPECT_FALSE(attentionsOf(*direct.model).empty());
    EXPECT_EQ(attentionsOf(*again.model), attentionsOf(*direct.model));
    EXPECT_EQ(again.model->graph().inputs().size(), direct.model->graph().inputs().size());
    EXPECT_EQ(again.manifest.json(), direct.manifest.json());
  }

  void expectEqual(const std::string& target, VerificationPlan plan) {
    SCOPED_TRACE(target);
    const DrivenModel other = rewritten(file, registries, "", target);
    plan.setTolerance(toleranceFor(other.model->graph(), 2));
    const VerificationReport report =
        valueOrThrow(verifyRewrite(file, *other.model, other.manifest, plan, registries));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
  }

  const Registries& registries;
  TemporaryFolder folder;
  std::string file = folder.path("in_place.onnx");
  DrivenModel direct;
};

using RestoredCachesTest = ShippedModelTest;

TEST_P(RestoredCachesTest, GiveTheSameFormAgain) {
  Restored(path(), registries).expectTheSameForm();
}

TEST_P(RestoredCachesTest, EveryTargetTakesThem) {
  Restored model(path(), registries);
  for (const char* target : {"primitive", "onnx23", "onnx24", "ort-gqa"})
    model.expectEqual(target, fullVerification());
}

TEST_P(RestoredCachesTest, AFixedCapacityIsForgotten) {
  Restored model(path(), registries, "capacity=48");
  const DrivenModel wider = rewritten(model.file, registries, "capacity=96");
  EXPECT_EQ(wider.manifest.capacityValue, 96);
  EXPECT_EQ(rewritten(model.file, registries).manifest.json(),
            rewritten(path(), registries).manifest.json());
}

/// Manifests come with the file, and may say anything.
TEST_P(RestoredCachesTest, AManifestThatDoesNotFitIsRefused) {
  TemporaryFolder folder;
  const DrivenModel inPlace = rewritten(path(), registries);
  auto isRefused = [&](void (*spoil)(Manifest&)) {
    Manifest manifest = inPlace.manifest;
    spoil(manifest);
    inPlace.model->setMetadata(manifestKey, manifest.json());
    const std::string file = folder.path("spoilt.onnx");
    successOrThrow(exportModel(*inPlace.model, file));
    EXPECT_THROW(rewritten(file, registries, "", "primitive"), std::runtime_error);
  };
  isRefused([](Manifest& manifest) { manifest.caches[0].sequenceAxis = 3; });
  isRefused([](Manifest& manifest) { manifest.caches[1].oneBuffer = false; });
  isRefused([](Manifest& manifest) { manifest.caches.pop_back(); });
  isRefused([](Manifest& manifest) { manifest.caches[0].past = manifest.lengths[0].input; });
  isRefused([](Manifest& manifest) { manifest.lengths[0].input = manifest.caches[0].past; });
  isRefused([](Manifest& manifest) { manifest.lengths[0].feed = LengthFeed::TotalLength; });
}

TEST_P(RestoredCachesTest, OtherOperatorsLengthsAreRefused) {
  TemporaryFolder folder;
  for (const char* target : {"onnx24", "ort-gqa", "int8"}) {
    const std::string file = folder.path(std::string(target) + ".onnx");
    successOrThrow(exportModel(*rewritten(path(), registries, "", target).model, file));
    EXPECT_THROW(rewritten(file, registries), std::runtime_error) << target;
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, RestoredCachesTest, shippedModels(), shippedModelName);

using RestoredCorpusTest = CorpusTest;

TEST_F(RestoredCorpusTest, EveryModelGivesTheSameFormAgain) {
  Registries registries;
  unsigned compared = 0;
  for (const std::string& name : foldersWith(corpusFolder(), "model.onnx")) {
    if (refusedInPlace().count(name) != 0)
      continue; // there is no form in place
    if (name == "llama_gqa-merged17-eager") {
      EXPECT_THROW(
          Restored((corpusFolder() / name / "model.onnx").string(), registries).expectTheSameForm(),
          std::runtime_error)
          << "it has branches";
      continue;
    }
    SCOPED_TRACE(name);
    const std::string path = (corpusFolder() / name / "model.onnx").string();
    if (!rewritten(path, registries).manifest.sharesBuffers())
      continue;
    Restored model(path, registries);
    model.expectTheSameForm();
    ++compared;
  }
  EXPECT_GE(compared, 50u);
}

} // namespace
} // namespace kvopt
