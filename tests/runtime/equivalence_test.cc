// Sessions compared step by step: equal models, models that differ, plans that do not fit.
#include "runtime/equivalence.h"

#include "ir/diagnostic.h"
#include "tests/runtime/counting_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
namespace {

EquivalencePlan plan(Padding padding = Padding::None) {
  EquivalencePlan result;
  result.prompt = 5;
  result.chunks = {2, 1};
  result.decodeSteps = 3;
  result.vocabulary = 8;
  result.padding = padding;
  return result;
}

std::string refusal(Session& a, Session& b, const EquivalencePlan& compared) {
  auto report = compareSessions(a, b, compared);
  return report ? "" : takeDiagnostic(report.takeError()).message;
}

TEST(Equivalence, AModelEqualsItself) {
  const test::CountingModel counting;
  for (Padding padding : {Padding::None, Padding::Left, Padding::Right}) {
    auto a = counting.session(2);
    auto b = counting.session(2);
    const ComparisonReport report = llvm::cantFail(compareSessions(*a, *b, plan(padding)));
    EXPECT_TRUE(report.equal());
    EXPECT_TRUE(report.tokensEqual);
    ASSERT_EQ(report.steps.size(), 6u);
    std::vector<std::string> phases;
    for (const StepComparison& step : report.steps) {
      phases.push_back(step.phase);
      ASSERT_EQ(step.outputs.size(), 1u);
      ASSERT_EQ(step.caches.size(), 1u);
      EXPECT_TRUE(step.outputs[0].comparison.bitExact);
    }
    EXPECT_EQ(phases, (std::vector<std::string>{"prefill", "chunk", "chunk", "decode", "decode",
                                                "decode"}));
    EXPECT_EQ(report.steps.back().caches[0].comparison.compared, 2 * plan().totalTokens());
  }
  EXPECT_EQ(plan().totalTokens(), 11);
}

TEST(Equivalence, OtherScoresAreSeen) {
  const test::CountingModel one("1"), two("2");
  auto a = one.session(2);
  auto b = two.session(2);
  const ComparisonReport report = llvm::cantFail(compareSessions(*a, *b, plan()));
  EXPECT_FALSE(report.equal());
  EXPECT_FALSE(report.tokensEqual);
  ASSERT_NE(report.worst(), nullptr);
  EXPECT_EQ(report.worst()->name, "logits");
  // The caches hold the tokens, which are the same.
  for (const StepComparison& step : report.steps)
    EXPECT_TRUE(step.caches[0].comparison.isWithin());
}

TEST(Equivalence, PlansThatDoNotFit) {
  const test::CountingModel counting;
  auto a = counting.session(2);
  auto b = counting.session(1);
  EXPECT_THAT(refusal(*a, *b, plan()), testing::HasSubstr("sessions of its batch size"));
  auto c = counting.session(2);
  EquivalencePlan none = plan();
  none.vocabulary = 0;
  EXPECT_THAT(refusal(*a, *c, none), testing::HasSubstr("needs tokens"));
}

TEST(Equivalence, CachesWithoutACounterpart) {
  const test::CountingModel counting;
  auto a = counting.session(2);
  const test::CountingModel other("1", "earlier");
  Manifest values = other.manifest;
  values.caches[0].role = CacheRole::Value;
  SessionOptions options;
  options.batch = 2;
  auto b = llvm::cantFail(Session::create(*other.model, other.kernels, values, options));
  EXPECT_THAT(refusal(*a, *b, plan()), testing::HasSubstr("no counterpart"));
}

TEST(Equivalence, Vocabulary) {
  const test::CountingModel counting;
  // No embedding table: the scores say how many tokens there are.
  EXPECT_EQ(llvm::cantFail(vocabularyOf(counting.model->graph())), 8);
}

} // namespace
} // namespace kvopt
