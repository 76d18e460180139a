// Sessions compared step by step: equal models, models that differ, plans that do not fit.
#include "runtime/equivalence/equivalence.h"

#include "support/diagnostic.h"
#include "tests/runtime/session/counting_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

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

TEST(Equivalence, ScoresThatAreNanInTheFirstModelAreInconclusive) {
  StepComparison step;
  step.pastTokens = 5;
  TensorComparison scores, cache;
  scores.name = "logits";
  scores.nanInFirst = 4;
  cache.name = "present";
  cache.comparison.compared = 4;
  cache.nanInFirst = 2;
  step.outputs = {scores};
  step.caches = {cache};
  ComparisonReport report;
  report.hasCaches = true;
  report.steps = {step};
  EXPECT_EQ(report.nanInFirst(), 6);
  EXPECT_EQ(report.nothingButNan(), std::vector<std::string>{"logits"});
  EXPECT_FALSE(report.isConclusive());
  // A number in another step suffices.
  step.outputs[0].comparison.compared = 1;
  report.steps.push_back(step);
  EXPECT_TRUE(report.nothingButNan().empty());
  EXPECT_TRUE(report.equal());
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

TEST(Equivalence, CachesWithoutACounterpartAreADifference) {
  const test::CountingModel counting;
  auto a = counting.session(2);
  const test::CountingModel other("1", "earlier");
  Manifest values = other.manifest;
  values.caches[0].role = CacheRole::Value;
  SessionOptions options;
  options.batch = 2;
  auto b = llvm::cantFail(Session::create(*other.model, other.kernels, values, options));
  const ComparisonReport report = llvm::cantFail(compareSessions(*a, *b, plan()));
  EXPECT_TRUE(report.isDifferent());
  EXPECT_THAT(report.differences, testing::Contains(testing::HasSubstr("'earlier'")));
}

/// A model without caches.
class ForgetfulModel {
public:
  ForgetfulModel(const std::string& signature, const std::string& body) {
    registerAll(ops);
    registerAll(kernels);
    model = llvm::cantFail(
        readText("<ir_version: 8, opset_import: [\"\" : 17]>\ng " + signature +
                     "\n<int64 depth = {8}, float[2] values = {0, 1}, float zero = {0}, "
                     "float[3, 2] table = {0, 1, 2, 3, 4, 5}>\n{\n" +
                     body + "\n}\n",
                 ops));
    llvm::cantFail(inferShapes(model->graph()));
  }
  ComparisonReport comparedWithItself() const {
    SessionOptions options;
    options.batch = 2;
    auto a = llvm::cantFail(Session::create(*model, kernels, Manifest(), options));
    auto b = llvm::cantFail(Session::create(*model, kernels, Manifest(), options));
    return llvm::cantFail(compareSessions(*a, *b, plan()));
  }

  OpRegistry ops;
  KernelRegistry kernels;
  std::unique_ptr<Model> model;
};

TEST(Equivalence, WhatRemembersNothingIsRunOnceForEachLength) {
  const ForgetfulModel decoder("(int64[B, S] input_ids) => (float[B, S, 8] logits)",
                               "logits = OneHot(input_ids, depth, values)");
  const ComparisonReport report = decoder.comparedWithItself();
  EXPECT_TRUE(report.equal() && report.tokensEqual && report.anyToken);
  std::vector<int64_t> lengths;
  for (const StepComparison& step : report.steps)
    lengths.push_back(step.tokens);
  EXPECT_EQ(lengths, (std::vector<int64_t>{5, 2, 1}));
}

TEST(Equivalence, AnEncoderOfFixedExtentsIsRunOnce) {
  const ForgetfulModel encoder("(float[B, 4, 6] input_features) => (float[B, 4, 6] hidden)",
                               "hidden = Tanh(input_features)");
  const ComparisonReport report = encoder.comparedWithItself();
  EXPECT_TRUE(report.equal() && report.tokensEqual);
  EXPECT_EQ(report.steps.size(), 1u);
}

// Where no score is the largest there is no token that could differ.
TEST(Equivalence, OutputsThatAreNotNumbersHaveNoTokens) {
  const ForgetfulModel encoder("(float[B, 4, 6] input_features) => (float[B, 4, 6] hidden)",
                               "none = Div(zero, zero)\n  hidden = Add(input_features, none)");
  const ComparisonReport report = encoder.comparedWithItself();
  EXPECT_TRUE(report.equal() && report.tokensEqual);
  EXPECT_FALSE(report.anyToken);
}

// Caches with made-up rows, the same in both sessions.
TEST(Equivalence, AfterMadeUpRows) {
  const test::CountingModel counting;
  auto a = counting.session(2);
  auto b = counting.session(2);
  EquivalencePlan late = plan();
  late.pastRows = 4;
  const ComparisonReport report = llvm::cantFail(compareSessions(*a, *b, late));
  EXPECT_TRUE(report.equal() && report.tokensEqual);
  EXPECT_EQ(a->length(), 4 + late.totalTokens());
  EXPECT_EQ(report.steps[0].caches[0].comparison.compared, 2 * (4 + 5));
  late.padding = Padding::Left;
  EXPECT_TRUE(llvm::cantFail(compareSessions(*a, *b, late)).equal());
}

TEST(Equivalence, VocabularyOfDescribedTokens) {
  const ForgetfulModel renamed("(int64[B, S] x) => (float[B, S, 2] z)",
                               "wide = Cast <to = 7> (x)\n  z = Gather(table, wide)");
  const ManifestInput tokens{"x", ElementType::Int64, {"batch", "new"}, InputFeed::Tokens};
  EXPECT_EQ(llvm::cantFail(vocabularyOf(renamed.model->graph(), tokens)), 3);
  const ForgetfulModel encoder("(float[B, F] x) => (float[B, F] y)", "y = Tanh(x)");
  EXPECT_EQ(llvm::cantFail(vocabularyOf(encoder.model->graph())), 1);
}

TEST(Equivalence, Vocabulary) {
  const test::CountingModel counting;
  // No embedding table: the scores say how many tokens there are.
  EXPECT_EQ(llvm::cantFail(vocabularyOf(counting.model->graph())), 8);
}

/// A decoder whose scores are `scores` of the tokens x, one number each; its cache collects them.
/// Positions end after 8.
class ScoringModel {
public:
  explicit ScoringModel(const std::string& element, const std::string& scores,
                        const std::string& limit = "Gather") {
    registerAll(ops);
    registerAll(kernels);
    std::string text = R"(
<ir_version: 10, opset_import: ["" : 21]>
g (int64[B, S] input_ids, int64[B, T] attention_mask, ELEMENT[B, P, 1] past)
  => (ELEMENT[B, S, V] logits, ELEMENT[B, N, 1] present)
<ELEMENT third = {0.3333}, int64 zero = {0}, int64 one = {1}, int64[1] last = {2}, int64[1] ends = {0},
 int64[1] eight = {8}, ELEMENT[8, 1] table = {0, 0, 0, 0, 0, 0, 0, 0}>
{
  total = Shape <start = 1> (attention_mask)
  length = Squeeze(total)
  at = Sub(length, one)
  position = LIMIT
  tokens = Cast <to = CODE> (input_ids)
  x = Unsqueeze(tokens, last)
  shifted = Add(x, position)
  SCORES
  logits = Identity(y)
  present = Concat <axis = 1> (past, x)
})";
    auto replace = [&](llvm::StringRef what, const std::string& by) {
      for (size_t place; (place = text.find(what.str())) != std::string::npos;)
        text.replace(place, what.size(), by);
    };
    replace("LIMIT",
            limit == "Gather" ? "Gather(table, at)" : "GatherND <batch_dims = 0> (table, total)");
    replace("SCORES", scores);
    replace("CODE", element == "float" ? "1" : "10");
    replace("ELEMENT", element);
    model = llvm::cantFail(readText(text, ops));
    llvm::cantFail(inferShapes(model->graph()));
    ManifestCache cache;
    cache.past = "past";
    cache.present = "present";
    cache.shape = {std::string("B"), std::string("P"), int64_t{1}};
    cache.sequenceAxis = 1;
    cache.dtype = element == "float" ? ElementType::Float : ElementType::Float16;
    manifest.caches = {cache};
  }
  std::unique_ptr<Session> session() const {
    SessionOptions options;
    options.batch = 2;
    return llvm::cantFail(Session::create(*model, kernels, manifest, options));
  }

private:
  OpRegistry ops;
  KernelRegistry kernels;
  std::unique_ptr<Model> model;
  Manifest manifest;
};

TEST(Equivalence, StepsThatAreRefusedAreCountedAndLaterOnesStillRun) {
  const ScoringModel one("float", "y = Mul(shifted, third)");
  auto a = one.session();
  auto b = one.session();
  EquivalencePlan compared = plan(); // 5 tokens, then chunks: the first does not fit
  compared.chunks = {4, 2};
  compared.decodeSteps = 3;
  const ComparisonReport report = llvm::cantFail(compareSessions(*a, *b, compared));
  EXPECT_TRUE(report.equal());
  EXPECT_EQ(report.steps.size(), 3u); // prefill, the chunk of 2, one decode step
  EXPECT_EQ(report.refusedSteps, 3);
  EXPECT_NE(report.refusal.find("out of range"), std::string::npos) << report.refusal;
}

TEST(Equivalence, StepsThatBothRefuseAreNoEvidence) {
  const ScoringModel one("float", "y = Mul(shifted, third)");
  const ScoringModel two("float", "y = Mul(shifted, third)", "GatherND");
  auto a = one.session();
  auto b = two.session();
  EquivalencePlan compared = plan();
  compared.chunks = {4};
  compared.decodeSteps = 0;
  const ComparisonReport report = llvm::cantFail(compareSessions(*a, *b, compared));
  EXPECT_EQ(report.refusedSteps, 1);
  EXPECT_EQ(report.steps.size(), 1u);
  EXPECT_FALSE(report.isDifferent());
}

TEST(Equivalence, TheBudgetIsWhatTheOriginalRounds) {
  // (x / 3) * 3 rounds twice, x once more than nothing; the offset is no rounding.
  const ScoringModel twice("float16", "t = Mul(shifted, third) y = Div(t, third)");
  const ScoringModel other("float16", "y = Identity(shifted)");
  const ScoringModel offset("float16", "t = Mul(third, third) y = Add(shifted, t)");
  const ScoringModel exact("float", "t = Mul(shifted, third) y = Div(t, third)");
  EquivalencePlan compared = plan();
  compared.chunks = {1};
  compared.decodeSteps = 2;
  compared.tolerance = {4e-2, 2e-2};
  auto compare = [&](const ScoringModel& second, bool withTwin) {
    auto a = twice.session();
    auto b = second.session();
    auto x = exact.session();
    std::optional<ExactSession> twin;
    if (withTwin)
      twin.emplace(ExactSession{*x, 0x1p-11});
    return llvm::cantFail(compareSessions(*a, *b, compared, twin));
  };
  const ComparisonReport rounded = compare(other, true);
  EXPECT_TRUE(rounded.equal());
  for (const StepComparison& step : rounded.steps) {
    EXPECT_LT(step.outputs[0].allowed, 2e-2);
    EXPECT_LE(step.caches[0].allowed, 7 * 0x1p-11); // exact data: one rounding of the largest token
  }
  EXPECT_EQ(compare(other, false).steps[0].outputs[0].allowed, 4e-2);
  EXPECT_FALSE(compare(offset, true).equal());
}

TEST(Equivalence, TokensMayDifferInNearTiesWithinTheBudgetOnly) {
  const std::string small = "c = Mul(third, third) d = Mul(c, c) t = Add(shifted, d) ";
  const ScoringModel one("float16", small + "y = Concat <axis = 2> (shifted, t)");
  const ScoringModel two("float16", small + "y = Concat <axis = 2> (t, shifted)");
  const ScoringModel exact("float", "y = Concat <axis = 2> (shifted, shifted)");
  EquivalencePlan compared = plan();
  compared.chunks = {};
  compared.decodeSteps = 2;
  compared.tolerance = {1e-1, 0};
  auto compare = [&](bool withTwin) {
    auto a = one.session();
    auto b = two.session();
    auto x = exact.session();
    std::optional<ExactSession> twin;
    if (withTwin)
      twin.emplace(ExactSession{*x, 0x1p-11});
    return llvm::cantFail(compareSessions(*a, *b, compared, twin));
  };
  EXPECT_TRUE(compare(true).equal());
  EXPECT_TRUE(compare(true).tokensEqual);
  EXPECT_TRUE(compare(false).equal());
  EXPECT_FALSE(compare(false).tokensEqual);
}

} // namespace
} // namespace kvopt
