// Which positions of planned steps are hidden.
#include "runtime/equivalence/planned_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace runtime;

namespace {

EquivalencePlan paddedPlan(Padding padding) {
  EquivalencePlan plan;
  plan.batch = 3;
  plan.vocabulary = 8;
  plan.padding = padding;
  return plan;
}

using Mask = std::vector<uint8_t>;

TEST(PlannedSteps, APromptInOneStep) {
  EquivalencePlan plan = paddedPlan(Padding::Left);
  plan.prompt = 6;
  const DecoderStep step = PlannedSteps(plan).next(6, 0, false);
  EXPECT_THAT(step.visible, testing::ElementsAre(Mask{0, 0, 1, 1, 1, 1}, Mask{1, 1, 1, 1, 1, 1},
                                                 Mask{0, 0, 1, 1, 1, 1}));
}

TEST(PlannedSteps, APromptTokenByTokenIsPaddedAsOne) {
  for (const Padding padding : {Padding::Left, Padding::Right}) {
    EquivalencePlan plan = paddedPlan(padding);
    plan.prompt = plan.stepTokens = 1;
    plan.padded = 6;
    PlannedSteps planned(plan);
    EquivalencePlan whole = paddedPlan(padding);
    whole.prompt = 6;
    const DecoderStep expected = PlannedSteps(whole).next(6, 0, false);
    DecoderStep step;
    for (int64_t past = 0; past < 6; ++past)
      step = planned.next(1, past, false);
    EXPECT_EQ(step.visible, expected.visible);
    step = planned.next(1, 6, false);
    for (const Mask& row : step.visible)
      EXPECT_EQ(row.back(), 1);
  }
}

TEST(PlannedSteps, MadeUpRowsArePadded) {
  EquivalencePlan plan = paddedPlan(Padding::Left);
  plan.prompt = 1;
  plan.pastRows = 5;
  const DecoderStep step = PlannedSteps(plan).next(1, 5, false);
  EXPECT_THAT(step.visible, testing::ElementsAre(Mask{0, 0, 1, 1, 1, 1}, Mask{1, 1, 1, 1, 1, 1},
                                                 Mask{0, 1, 1, 1, 1, 1}));
}

} // namespace
} // namespace kvopt
