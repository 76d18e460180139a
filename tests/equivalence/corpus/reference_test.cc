// Rewritten models against what PyTorch computed for the exported ones.
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace runtime;

namespace {

using ReferenceTest = ShippedModelTest;

TEST_P(ReferenceTest, EveryRecordedCaseAgrees) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel inPlace = rewritten(path(), toolkit);
  std::vector<std::string> cases = referenceCases();
  ASSERT_FALSE(cases.empty());
  for (const std::string& recorded : cases) {
    auto steps = valueOrThrow(readReference(recorded));
    ASSERT_GE(steps.size(), 6u) << recorded;
    SessionOptions shared;
    shared.batch = referenceBatch(steps).value();
    shared.capacity = referenceLength(steps);
    SessionOptions roomy = shared;
    roomy.capacity += 11;
    SessionOptions stateful = shared;
    stateful.mode = SessionOptions::Mode::Stateful;
    stateful.capacity = 4;
    struct Run {
      const char* name;
      const DrivenModel* model;
      SessionOptions options;
    };
    for (const Run& run :
         {Run{"as exported", &exported, shared}, Run{"shared", &inPlace, shared},
          Run{"with room to spare", &inPlace, roomy}, Run{"stateful", &inPlace, stateful}}) {
      SCOPED_TRACE(recorded + ", " + run.name);
      auto session = openSession(*run.model, toolkit.runner->kernels(), run.options);
      ComparisonReport report = valueOrThrow(replayReference(*session, steps, Tolerance{1e-4, 0}));
      EXPECT_TRUE(report.equal()) << report.worst()->name << " "
                                  << report.worst()->comparison.maxAbs;
      ASSERT_EQ(report.steps.size(), steps.size());
      for (const StepComparison& step : report.steps) {
        EXPECT_EQ(step.outputs.size(), 1u);
        EXPECT_EQ(step.caches.size(), 2 * GetParam().sites);
        for (const TensorComparison& cache : step.caches)
          EXPECT_GT(cache.comparison.compared, cache.skipped) << cache.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, ReferenceTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
