// Rewritten models as files: read back they run the same, and rewriting is deterministic.
#include "tests/equivalence/rewritten_model.h"
#include "tests/support/temporary_folder.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

using RoundTripTest = ShippedModelTest;

TEST_P(RoundTripTest, AFileRunsLikeTheModelInMemory) {
  TemporaryFolder folder;
  DrivenModel inMemory = rewritten(path(), toolkit);
  std::string file = folder.path("rewritten.onnx");
  successOrThrow(exportModel(*inMemory.model, file));
  DrivenModel fromFile = asExported(file, toolkit);
  EXPECT_EQ(fromFile.manifest.json(), inMemory.manifest.json());
  EquivalencePlan plan = quickVerification();
  plan.batch = 2;
  plan.padding = Padding::Left;
  plan.tolerance = {0, 0};
  VerificationReport report = valueOrThrow(verifyModels(
      *inMemory.model, inMemory.manifest, *fromFile.model, fromFile.manifest, plan, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  for (const StepComparison& step : report.comparison.steps)
    for (const auto* group : {&step.outputs, &step.caches})
      for (const TensorComparison& tensor : *group)
        EXPECT_TRUE(tensor.comparison.bitExact) << tensor.name;
  EXPECT_EQ(report.cacheBytesCopied, 0);

  // Nobody edited what was read, so it is written back byte for byte.
  std::string again = folder.path("again.onnx");
  auto untouched = valueOrThrow(importModel(file, toolkit.ops));
  successOrThrow(exportModel(*untouched, again));
  EXPECT_EQ(folder.read("again.onnx"), folder.read("rewritten.onnx"));
}

TEST_P(RoundTripTest, RewritingIsDeterministic) {
  DrivenModel first = rewritten(path(), toolkit);
  DrivenModel second = rewritten(path(), toolkit);
  EXPECT_EQ(valueOrThrow(exportModelBytes(*first.model)),
            valueOrThrow(exportModelBytes(*second.model)));
  EXPECT_EQ(first.manifest.json(), second.manifest.json());
}

TEST_P(RoundTripTest, RewritingTwiceGivesTheSameManifest) {
  TemporaryFolder folder;
  std::string file = folder.path("rewritten.onnx");
  DrivenModel once = rewritten(path(), toolkit);
  successOrThrow(exportModel(*once.model, file));
  EXPECT_EQ(rewritten(file, toolkit).manifest.json(), once.manifest.json());
}

INSTANTIATE_TEST_SUITE_P(Shipped, RoundTripTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
