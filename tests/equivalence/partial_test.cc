// Models of which only some layers were rewritten: caches of both kinds side by side.
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

using PartialTest = ShippedModelTest;

TEST_P(PartialTest, GrowingAndSharedCachesInOneSession) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel partial = rewritten(path(), toolkit, "layers=0");
  ASSERT_EQ(partial.manifest.caches.size(), 2 * GetParam().sites);
  for (const ManifestCache& cache : partial.manifest.caches)
    EXPECT_EQ(cache.isOneBuffer(), cache.layer == 0) << cache.past;
  EquivalencePlan plan = quickVerification();
  plan.batch = 2;
  plan.padding = Padding::Left;
  VerificationReport report = valueOrThrow(verifyModels(
      *exported.model, exported.manifest, *partial.model, partial.manifest, plan, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  EXPECT_EQ(report.cacheBytesCopied, 0);

  SessionOptions options;
  options.mode = SessionOptions::Mode::Stateful;
  options.capacity = 4;
  options.batch = 2;
  auto grown = openSession(partial, toolkit.runner->kernels(), options);
  plan.vocabulary = valueOrThrow(vocabularyOf(exported.model->graph()));
  SessionOptions growing;
  growing.batch = 2;
  auto original = openSession(exported, toolkit.runner->kernels(), growing);
  EXPECT_TRUE(valueOrThrow(compareSessions(*original, *grown, plan)).equal());
  EXPECT_GE(grown->statistics().cacheReallocations, 1);
}

INSTANTIATE_TEST_SUITE_P(Shipped, PartialTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
