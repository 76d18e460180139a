// Generation with a draft: the tokens are those of generation without one.
#include "driver/generate/generation.h"
#include "support/format.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

constexpr const char* decoder = "/models/llama_gqa-ts14-eager/model.onnx";
const std::vector<std::vector<int64_t>> prompt = {{3, 1, 4, 1, 5}};

class Drafts : public testing::Test {
protected:
  static constexpr int64_t steps = 40;

  DrivenModel inForm(const std::string& target) {
    const std::string path = KVOPT_SOURCE_DIR + std::string(decoder);
    return target.empty() ? asExported(path, toolkit) : rewritten(path, toolkit, "", target);
  }

  std::unique_ptr<Session> sessionOf(const DrivenModel& driven, int64_t capacity = 64) {
    SessionOptions options;
    options.capacity = driven.manifest.ownsCaches() ? capacity : 0;
    return valueOrThrow(
        Session::create(*driven.model, toolkit.runner->kernels(), driven.manifest, options));
  }

  GenerationResult generated(const DrivenModel& model, const DrivenModel* draft,
                             GenerationOptions options, int64_t capacity = 64) {
    auto session = sessionOf(model, capacity);
    std::unique_ptr<Session> guesses = draft ? sessionOf(*draft) : nullptr;
    options.draft.session = guesses.get();
    GenerationResult result = valueOrThrow(generate(*session, prompt, options));
    // All tokens but the last are in the caches.
    EXPECT_EQ(session->length(),
              static_cast<int64_t>(prompt.front().size() + result.sequences[0].tokens.size()) - 1);
    return result;
  }

  Toolkit toolkit;
};

TEST_F(Drafts, GiveTheTokensOfAPlainRun) {
  const DrivenModel own = inForm("kvopt");
  for (const char* form : {"", "kvopt", "onnx24", "blocks:8"}) {
    const DrivenModel model =
        form == std::string("blocks:8")
            ? rewritten(KVOPT_SOURCE_DIR + std::string(decoder), toolkit, "capacity=64", form)
            : inForm(form);
    for (double temperature : {0.0, 0.9}) {
      GenerationOptions options;
      options.steps = steps;
      options.sampling.temperature = temperature;
      options.sampling.seed = 7;
      const GenerationResult plain = generated(model, nullptr, options);
      for (const char* drafted : {"kvopt", "int8", "primitive"}) {
        const DrivenModel draft = inForm(drafted);
        for (int64_t tokens : {1, 2, 3, 7, 50}) {
          SCOPED_TRACE(formatted("'{}', {}, {} tokens of {}", form, temperature, tokens, drafted));
          options.draft.tokens = tokens;
          const GenerationResult result = generated(model, &draft, options);
          EXPECT_EQ(result.sequences[0].tokens, plain.sequences[0].tokens);
          EXPECT_EQ(result.decodedTokens, plain.decodedTokens);
          EXPECT_GT(result.draftedTokens, 0);
          if (drafted == std::string("kvopt")) {
            EXPECT_EQ(result.acceptedTokens, result.draftedTokens);
          }
        }
      }
    }
  }
}

TEST_F(Drafts, MayBeWrongEveryTime) {
  // A draft that knows nothing of the model.
  const DrivenModel model = inForm("kvopt");
  GenerationOptions options;
  options.steps = steps;
  const GenerationResult plain = generated(model, nullptr, options);
  TemporaryFolder folder;
  const std::string text = R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[B, S] input_ids, float[B, P, 1] past) => (float[B, S, 160] logits, float[B, T, 1] present)
<int64[1] last = {2}, float[160] slope = {)" +
                           [] {
                             std::string numbers = "0";
                             for (int i = 1; i < 160; ++i)
                               numbers += formatted(", {}", i % 5);
                             return numbers;
                           }() +
                           R"(}>
{
  ids = Cast <to = 1> (input_ids)
  column = Unsqueeze (ids, last)
  logits = Mul (column, slope)
  present = Concat <axis = 1> (past, column)
})";
  const DrivenModel draft = asExported(writtenModel(text, toolkit, folder), toolkit);
  for (int64_t tokens : {1, 4}) {
    options.draft.tokens = tokens;
    const GenerationResult result = generated(model, &draft, options);
    EXPECT_EQ(result.sequences[0].tokens, plain.sequences[0].tokens);
    EXPECT_LT(result.acceptedTokens, result.draftedTokens);
  }
}

TEST_F(Drafts, EndWhereAPlainRunEnds) {
  const DrivenModel model = inForm("kvopt");
  GenerationOptions options;
  options.steps = steps;
  const std::vector<int64_t> all = generated(model, nullptr, options).sequences[0].tokens;
  options.draft.tokens = 5;
  options.stopTokens = {all[6]};
  const GenerationResult stopped = generated(model, &model, options);
  const auto first = llvm::find(all, all[6]);
  EXPECT_EQ(stopped.sequences[0].tokens, std::vector<int64_t>(all.begin(), first + 1));
  EXPECT_EQ(stopped.sequences[0].stopped, StopReason::Token);
  options.stopTokens.clear();
  options.stopSequences = {{all[8], all[9]}};
  EXPECT_EQ(generated(model, &model, options).sequences[0].stopped, StopReason::Sequence);
  options.stopSequences.clear();
  // Five tokens of the prompt, and seven more.
  const GenerationResult full = generated(model, &model, options, 12);
  EXPECT_EQ(full.sequences[0].tokens, std::vector<int64_t>(all.begin(), all.begin() + 8));
  EXPECT_EQ(full.sequences[0].stopped, StopReason::Capacity);
  for (int64_t few : {1, 2, 3}) {
    options.steps = few;
    EXPECT_EQ(generated(model, &model, options).sequences[0].tokens,
              std::vector<int64_t>(all.begin(), all.begin() + few));
  }
}

TEST_F(Drafts, AreRefusedWhereTheyCannotWork) {
  const DrivenModel model = inForm("kvopt");
  const auto errorWith = [&](Session& session, Session& draft,
                             const std::vector<std::vector<int64_t>>& prompts) {
    GenerationOptions options;
    options.draft.session = &draft;
    auto result = generate(session, prompts, options);
    return result ? "no error" : takeDiagnostic(result.takeError()).str();
  };
  auto session = sessionOf(model);
  auto used = sessionOf(model);
  stepAlike(*used, 2);
  EXPECT_THAT(errorWith(*session, *used, prompt), testing::HasSubstr("from the start"));
  EXPECT_THAT(errorWith(*used, *session, prompt), testing::HasSubstr("from the start"));
  TemporaryFolder folder;
  const auto toy = [&](const char* past, const char* present, const char* joined) {
    return asExported(writtenModel(formatted(R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[B, S] input_ids, float{} past) => (float[B, S, 4] logits, float{} present)
<int64[1] last = {{2}}, float[4] slope = {{0, 1, 2, 3}}, int64[1] axis = {{1}}, int64[1] end = {{9223372036854775807}},
 int64[1] two = {{-2}}>
{{
  ids = Cast <to = 1> (input_ids)
  column = Unsqueeze (ids, last)
  logits = Mul (column, slope)
  {}
}})",
                                             past, present, joined),
                                   toolkit, folder),
                      toolkit);
  };
  const DrivenModel few =
      toy("[B, P, 1]", "[B, T, 1]", "present = Concat <axis = 1> (past, column)");
  auto narrow = sessionOf(few);
  EXPECT_THAT(errorWith(*session, *narrow, prompt), testing::HasSubstr("a vocabulary of 4 tokens"));
  const DrivenModel state = toy("[B, 4, 1]", "[B, 4, 1]", "present = Mul (past, past)");
  auto recurrent = sessionOf(state);
  auto fresh = sessionOf(model);
  EXPECT_THAT(errorWith(*fresh, *recurrent, prompt),
              testing::HasSubstr("the draft cannot take tokens back: 'past' keeps a state only"));
  EXPECT_THAT(errorWith(*recurrent, *fresh, prompt), testing::HasSubstr("the model cannot take"));
}

} // namespace
} // namespace kvopt
