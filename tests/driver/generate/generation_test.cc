// Generation with a counting model.
#include "driver/generate/generation.h"

#include "support/diagnostic.h"
#include "tests/runtime/session/cached_models.h"
#include "tests/runtime/session/counting_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

template <class T> std::string errorOf(llvm::Expected<T> value) {
  return value ? "" : takeDiagnostic(value.takeError()).message;
}

using Prompts = std::vector<std::vector<int64_t>>;

TEST(Generation, CountsOn) {
  const test::CountingModel counting;
  for (int64_t chunk : {0, 1, 2}) {
    auto session = counting.session();
    GenerationOptions options;
    options.steps = 5;
    options.chunk = chunk;
    std::vector<int64_t> told;
    options.onToken = [&](int64_t row, int64_t token) {
      EXPECT_EQ(row, 0);
      told.push_back(token);
    };
    std::vector<int64_t> stepTokens;
    options.feed.onStep = [&](int64_t tokens, llvm::ArrayRef<NamedTensor> inputs,
                              const StepResult& result) {
      EXPECT_EQ(inputs.front().tensor.view.shape[1], tokens);
      EXPECT_NE(result.find("logits"), nullptr);
      stepTokens.push_back(tokens);
      return llvm::Error::success();
    };
    const GenerationResult result = llvm::cantFail(generate(*session, Prompts{{2, 3, 4}}, options));
    ASSERT_EQ(result.sequences.size(), 1u);
    EXPECT_EQ(result.sequences[0].tokens, (std::vector<int64_t>{5, 6, 7, 0, 1}));
    EXPECT_EQ(result.sequences[0].stopped, StopReason::Steps);
    EXPECT_EQ(told, result.sequences[0].tokens);
    EXPECT_EQ(result.promptTokens, 3);
    EXPECT_EQ(result.decodedTokens, 4);
    EXPECT_EQ(session->length(), 7);
    std::vector<int64_t> prefill = chunk == 0   ? std::vector<int64_t>{3}
                                   : chunk == 1 ? std::vector<int64_t>{1, 1, 1}
                                                : std::vector<int64_t>{2, 1};
    prefill.insert(prefill.end(), 4, 1);
    EXPECT_EQ(stepTokens, prefill);
  }
}

/// A model that was exported for steps of one token is given its prompt in such.
TEST(Generation, APromptIsReadInStepsThatTheModelTakes) {
  const test::CountingModel counting;
  counting.model->graph()
      .findValue("input_ids")
      ->setType(TensorType(ElementType::Int64, Shape{Dim::symbol("B"), Dim::fixed(1)}));
  auto session = counting.session();
  GenerationOptions options;
  options.steps = 3;
  const GenerationResult result = llvm::cantFail(generate(*session, Prompts{{2, 3, 4}}, options));
  EXPECT_EQ(result.sequences[0].tokens, (std::vector<int64_t>{5, 6, 7}));
  EXPECT_EQ(session->length(), 5);
}

TEST(Generation, GoesOnWhereASessionIs) {
  const test::CountingModel counting;
  auto session = counting.session();
  GenerationOptions options;
  options.steps = 2;
  llvm::cantFail(generate(*session, Prompts{{1}}, options));
  EXPECT_EQ(session->length(), 2);
  const GenerationResult more = llvm::cantFail(generate(*session, Prompts{{3}}, options));
  EXPECT_EQ(more.sequences[0].tokens, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(session->length(), 4);
}

TEST(Generation, StopsAtTokensAndSequences) {
  const test::CountingModel counting;
  GenerationOptions options;
  options.steps = 20;
  options.stopTokens = {5, 1};
  auto session = counting.session();
  GenerationResult result = llvm::cantFail(generate(*session, Prompts{{2}}, options));
  EXPECT_EQ(result.sequences[0].tokens, (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(result.sequences[0].stopped, StopReason::Token);

  options.stopTokens.clear();
  options.stopSequences = {{7, 1}, {}, {7, 0}};
  session = counting.session();
  result = llvm::cantFail(generate(*session, Prompts{{4}}, options));
  EXPECT_EQ(result.sequences[0].tokens, (std::vector<int64_t>{5, 6, 7, 0}));
  EXPECT_EQ(result.sequences[0].stopped, StopReason::Sequence);
}

TEST(Generation, SequencesOfABatchEndApart) {
  const test::CountingModel counting;
  auto session = counting.session(3);
  GenerationOptions options;
  options.steps = 4;
  options.stopTokens = {4};
  // The second prompt is padded on the left.
  const GenerationResult result =
      llvm::cantFail(generate(*session, Prompts{{1, 2}, {6}, {0, 3}}, options));
  EXPECT_EQ(result.sequences[0].tokens, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(result.sequences[0].stopped, StopReason::Token);
  EXPECT_EQ(result.sequences[1].tokens, (std::vector<int64_t>{7, 0, 1, 2}));
  EXPECT_EQ(result.sequences[1].stopped, StopReason::Steps);
  EXPECT_EQ(result.sequences[2].tokens, (std::vector<int64_t>{4}));
  EXPECT_EQ(result.promptTokens, 5);
  EXPECT_EQ(result.decodedTokens, 1 + 3);
  EXPECT_EQ(session->length(), 5);
}

TEST(Generation, PaddingIsHidden) {
  const test::CountingModel counting;
  auto session = counting.session(2);
  GenerationOptions options;
  options.steps = 2;
  std::vector<std::vector<int64_t>> masks;
  options.feed.onStep = [&](int64_t, llvm::ArrayRef<NamedTensor> inputs, const StepResult&) {
    const TensorView& mask = inputs[1].tensor.view;
    EXPECT_EQ(inputs[1].name, "attention_mask");
    masks.emplace_back(mask.as<int64_t>(), mask.as<int64_t>() + mask.elementCount());
    return llvm::Error::success();
  };
  llvm::cantFail(generate(*session, Prompts{{1, 2, 3}, {6}}, options));
  EXPECT_EQ(masks,
            (std::vector<std::vector<int64_t>>{{1, 1, 1, 0, 0, 1}, {1, 1, 1, 1, 0, 0, 1, 1}}));
}

TEST(Generation, FullCachesEndItAndOtherErrorsDoNot) {
  const test::CachedModel cached(test::CacheForm::Shared);
  SessionOptions settings = cached.options(/*batch=*/1);
  settings.capacity = 6;
  GenerationOptions options;
  options.steps = 10;
  auto session = cached.session(settings);
  const GenerationResult result = llvm::cantFail(generate(*session, Prompts{{1, 2, 3}}, options));
  EXPECT_EQ(result.sequences[0].stopped, StopReason::Capacity);
  EXPECT_EQ(result.sequences[0].tokens.size(), 4u);
  EXPECT_EQ(session->length(), 6);
  auto beyond = generate(*session, Prompts{{1}}, options);
  EXPECT_TRUE(beyond.errorIsA<CapacityError>());
  EXPECT_NE(errorOf(std::move(beyond)), "");

  // The buffer is full before the step that fails, but it could grow.
  settings.mode = SessionOptions::Mode::Stateful;
  session = cached.session(settings);
  options.feed.onStep = [&](int64_t, llvm::ArrayRef<NamedTensor>,
                            const StepResult&) -> llvm::Error {
    if (session->length() <= settings.capacity)
      return llvm::Error::success();
    return invalid("another error");
  };
  EXPECT_EQ(errorOf(generate(*session, Prompts{{1, 2, 3}}, options)), "another error");
}

TEST(Generation, ContextShiftsMakeRoom) {
  test::CachedModel cached(test::CacheForm::Shared);
  cached.manifest.rotations.emplace();
  SessionOptions settings = cached.options(/*batch=*/2);
  settings.capacity = 10;
  GenerationOptions options;
  options.steps = 25;
  options.shift.isOn = true;
  options.shift.kept = 2;
  auto session = cached.session(settings);
  const Prompts prompts{{1, 2, 3, 4}, {5, 6, 7, 0}};
  const GenerationResult result = llvm::cantFail(generate(*session, prompts, options));
  // The same by hand.
  auto other = cached.session(settings);
  GenerationOptions oneStep;
  oneStep.steps = 1;
  std::vector<std::vector<int64_t>> tokens(2);
  Prompts next = prompts;
  int64_t shifts = 0;
  for (int64_t made = 0; made < options.steps; ++made) {
    if (other->length() == settings.capacity) {
      llvm::cantFail(other->shift(2, 4));
      ++shifts;
    }
    const GenerationResult step = llvm::cantFail(generate(*other, next, oneStep));
    for (size_t row = 0; row < 2; ++row) {
      next[row] = step.sequences[row].tokens;
      tokens[row].insert(tokens[row].end(), next[row].begin(), next[row].end());
    }
  }
  EXPECT_EQ(shifts, 5);
  EXPECT_EQ(result.contextShifts, shifts);
  EXPECT_EQ(result.droppedTokens, 4 * shifts);
  for (size_t row = 0; row < 2; ++row) {
    EXPECT_EQ(result.sequences[row].stopped, StopReason::Steps);
    EXPECT_EQ(result.sequences[row].tokens, tokens[row]);
  }
  EXPECT_EQ(session->length(), other->length());

  // Caches that grow are held to a number of tokens.
  test::CachedModel growing(test::CacheForm::Growing);
  growing.manifest.rotations.emplace();
  options.shift.capacity = 10;
  auto unbounded = growing.session(growing.options(/*batch=*/2));
  const GenerationResult bounded = llvm::cantFail(generate(*unbounded, prompts, options));
  EXPECT_EQ(bounded.contextShifts, shifts);
  EXPECT_EQ(bounded.sequences[0].tokens, tokens[0]);
  EXPECT_LE(unbounded->length(), 10);
}

TEST(Generation, ContextShiftsThatCannotBe) {
  test::CachedModel cached(test::CacheForm::Shared);
  GenerationOptions options;
  options.shift.isOn = true;
  const auto refusal = [&](const Prompts& prompts) {
    auto session = cached.session(cached.options(static_cast<int64_t>(prompts.size())));
    std::string error = errorOf(generate(*session, prompts, options));
    EXPECT_EQ(session->length(), 0);
    return error;
  };
  EXPECT_THAT(refusal({{1, 2, 3}}), testing::HasSubstr("the manifest does not say"));
  cached.manifest.rotations.emplace();
  EXPECT_THAT(refusal({{1, 2, 3}, {1, 2}}), testing::HasSubstr("differ in length"));
  options.shift.kept = -1;
  EXPECT_THAT(refusal({{1, 2, 3}}), testing::HasSubstr("cannot keep -1"));
  options.shift.kept = 9;
  options.shift.capacity = 10;
  EXPECT_THAT(refusal({{1, 2, 3}}), testing::HasSubstr("cannot keep 9 tokens and go on"));
  options.shift = {true, 4, 0};
  auto draft = cached.session(cached.options(1));
  options.draft.session = draft.get();
  EXPECT_THAT(refusal({{1, 2, 3}}), testing::HasSubstr("while a draft guesses"));
}

TEST(Generation, RequestsThatMakeNoSense) {
  const test::CountingModel counting;
  auto session = counting.session();
  GenerationOptions options;
  EXPECT_NE(errorOf(generate(*session, Prompts{}, options)), "");
  EXPECT_NE(errorOf(generate(*session, Prompts{{1}, {2}}, options)), "");
  EXPECT_NE(errorOf(generate(*session, Prompts{{}}, options)), "");
  options.steps = 0;
  EXPECT_NE(errorOf(generate(*session, Prompts{{1}}, options)), "");
  options.steps = 1;
  options.sampling.topP = 2;
  EXPECT_NE(errorOf(generate(*session, Prompts{{1}}, options)), "");
  EXPECT_EQ(session->length(), 0);
}

} // namespace
} // namespace kvopt
