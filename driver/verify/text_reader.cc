// Running of a text step by step.
#include "driver/verify/text_reader.h"

#include "driver/first_step.h"
#include "driver/verify/plan.h"
#include "driver/verify/verification.h"
#include "runtime/session/token_choice.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/progress.h"

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

llvm::Error forEachWindow(const TextPlan& plan, ProgressListener* listener, const char* words,
                          llvm::function_ref<llvm::Error(llvm::ArrayRef<int64_t> window)> read) {
  const llvm::ArrayRef<int64_t> text = plan.tokens;
  Progress progress(listener, words);
  progress.expect(static_cast<double>(text.size()));
  for (size_t begin = 0; begin < text.size(); begin += static_cast<size_t>(plan.context)) {
    if (llvm::Error error = read(text.slice(begin).take_front(static_cast<size_t>(plan.context))))
      return error;
    progress.advance(static_cast<double>(plan.context));
  }
  return llvm::Error::success();
}

llvm::Error checkByteTokens(const Graph& graph, llvm::ArrayRef<ManifestInput> described,
                            const char* option, const char* instead) {
  constexpr int64_t bytes = 256;
  auto vocabulary = vocabularyOf(graph, described);
  if (!vocabulary) {
    llvm::consumeError(vocabulary.takeError());
    return llvm::Error::success();
  }
  if (*vocabulary <= bytes)
    return llvm::Error::success();
  return usageError("{} is for byte-level models, and this model has {} tokens", option,
                    *vocabulary)
      .hint(formatted("use {}", instead));
}

TextStep textStepOf(const Model& model, const Manifest& manifest, int64_t wanted) {
  EquivalencePlan fitted;
  fitted.prompt = wanted;
  fitted.batch = 1;
  fitTokenInputs(model.graph(), manifest, fitted);
  return {std::min(fitted.prompt, manifest.stepLimit.value_or(fitted.prompt)), fitted.batch,
          fitted.stepTokens != 1};
}

llvm::Expected<TextReader> TextReader::open(const Model& model, const Manifest& manifest,
                                            int64_t batch, const TextPlan& plan, unsigned threads,
                                            const Toolkit& toolkit) {
  if (!manifest.firstStep.empty())
    return unsupported("a text cannot be measured with a model that attends to an encoder");
  auto session = openForTokens(model, manifest, batch, plan.context, threads, toolkit);
  if (!session)
    return session.takeError();
  return TextReader(std::move(*session), plan);
}

TextReader::TextReader(std::unique_ptr<Session> opened, const TextPlan& plan)
    : session(std::move(opened)), settings(std::make_unique<FeedOptions>()) {
  for (const InputRecipe& recipe : plan.recipes)
    if (hasInput(session->graph(), recipe.input))
      settings->recipes.push_back(recipe);
}

llvm::Error TextReader::startWindow() {
  feed = std::make_unique<TokenFeed>(*session, *settings);
  return session->reset();
}

llvm::Expected<StepResult> TextReader::step(llvm::ArrayRef<int64_t> tokens) {
  const std::vector<std::vector<int64_t>> rows(static_cast<size_t>(session->batch()), tokens.vec());
  StepResult result;
  if (llvm::Error error = feed->run(rows, result))
    return error;
  return result;
}

llvm::Expected<std::pair<int64_t, int64_t>> TextReader::scoresOf(int64_t tokens) {
  if (llvm::Error error = startWindow())
    return error;
  auto result = step(std::vector<int64_t>(static_cast<size_t>(tokens), 0));
  if (!result)
    return result.takeError();
  auto logits = findLogits(*result);
  if (!logits)
    return logits.takeError();
  return std::pair((*logits)->view.shape[1], (*logits)->view.shape[2]);
}

} // namespace kvopt::driver
