// Comparison of the predictions of two models for a text.
#include "driver/verify/likelihood.h"

#include "driver/verify/text_reader.h"
#include "runtime/session/token_choice.h"
#include "support/diagnostic.h"

#include <cmath>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// ln sum exp(score).
double logSumExp(llvm::ArrayRef<float> scores) {
  const double largest = scores[static_cast<size_t>(largestScore(scores))];
  double sum = 0;
  for (float score : scores)
    sum += std::exp(double{score} - largest);
  return largest + std::log(sum);
}

class LikelihoodComparison {
public:
  LikelihoodComparison(TextReader readerOfA, TextReader readerOfB, const TextPlan& given,
                       TextStep extents)
      : a(std::move(readerOfA)), b(std::move(readerOfB)), plan(given), step(extents) {}

  llvm::Expected<LikelihoodReport> run(ProgressListener* listener) {
    if (llvm::Error error = fitScores())
      return error;
    report.context = plan.context;
    auto read = [this](llvm::ArrayRef<int64_t> window) { return readWindow(window); };
    if (llvm::Error error = forEachWindow(plan, listener, "reading the text", read))
      return error;
    if (report.tokens == 0)
      return usageError("the text has no token that is predicted from one before it");
    return report;
  }

private:
  /// Limits steps to one token if a model gives only the scores of the last token.
  llvm::Error fitScores() {
    auto ofA = a.scoresOf(step.tokens);
    if (!ofA)
      return ofA.takeError();
    auto ofB = b.scoresOf(step.tokens);
    if (!ofB)
      return ofB.takeError();
    if (ofA->second != ofB->second)
      return usageError("the models have vocabularies of {} and {} tokens", ofA->second,
                        ofB->second);
    for (int64_t token : plan.tokens)
      if (token < 0 || token >= ofA->second)
        return usageError("token {} is outside of the vocabulary of {} tokens", token, ofA->second);
    if (ofA->first >= step.tokens && ofB->first >= step.tokens)
      return llvm::Error::success();
    if (step.isFixed)
      return unsupported("a step of {} tokens gives scores of {} and {} of them", step.tokens,
                         ofA->first, ofB->first);
    step.tokens = 1;
    return llvm::Error::success();
  }

  llvm::Error readWindow(llvm::ArrayRef<int64_t> window) {
    if (llvm::Error error = a.startWindow())
      return error;
    if (llvm::Error error = b.startWindow())
      return error;
    const auto count = static_cast<size_t>(step.tokens);
    for (size_t begin = 0; begin + 1 < window.size(); begin += count) {
      const llvm::ArrayRef<int64_t> tokens = window.slice(begin).take_front(count);
      if (step.isFixed && tokens.size() < count)
        break;
      auto ofA = a.step(tokens);
      if (!ofA)
        return ofA.takeError();
      auto ofB = b.step(tokens);
      if (!ofB)
        return ofB.takeError();
      for (size_t i = 0; i < tokens.size() && begin + i + 1 < window.size(); ++i)
        if (llvm::Error error = addPrediction(
                *ofA, *ofB, static_cast<int64_t>(tokens.size() - 1 - i), window[begin + i + 1]))
          return error;
    }
    return llvm::Error::success();
  }

  static llvm::Expected<std::vector<float>> scoresOf(const StepResult& result, int64_t before) {
    auto logits = findLogits(result);
    if (!logits)
      return logits.takeError();
    auto scores = lastScores(**logits, 0, before);
    if (!scores)
      return scores.takeError();
    return readScores(*scores);
  }

  /// Adds the prediction of the token `next`, which follows the token at `before` positions before
  /// the last one of the step.
  llvm::Error addPrediction(const StepResult& resultOfA, const StepResult& resultOfB,
                            int64_t before, int64_t next) {
    auto ofA = scoresOf(resultOfA, before);
    if (!ofA)
      return ofA.takeError();
    auto ofB = scoresOf(resultOfB, before);
    if (!ofB)
      return ofB.takeError();
    const double normA = logSumExp(*ofA);
    const double normB = logSumExp(*ofB);
    ++report.tokens;
    report.tokensAlike += largestScore(*ofA) == largestScore(*ofB) ? 1 : 0;
    report.surpriseOfA += normA - double{(*ofA)[static_cast<size_t>(next)]};
    report.surpriseOfB += normB - double{(*ofB)[static_cast<size_t>(next)]};
    for (size_t i = 0; i < ofA->size(); ++i) {
      const double logA = double{(*ofA)[i]} - normA;
      const double probability = std::exp(logA);
      if (probability > 0)
        report.divergence += probability * (logA - (double{(*ofB)[i]} - normB));
    }
    return llvm::Error::success();
  }

  TextReader a;
  TextReader b;
  TextPlan plan;
  TextStep step;
  LikelihoodReport report;
};

double perplexity(double surprise, int64_t tokens) {
  return tokens == 0 ? 1 : std::exp(surprise / static_cast<double>(tokens));
}

} // namespace

double LikelihoodReport::perplexityOfA() const { return perplexity(surpriseOfA, tokens); }
double LikelihoodReport::perplexityOfB() const { return perplexity(surpriseOfB, tokens); }

llvm::Expected<LikelihoodReport> compareLikelihoods(const Model& a, const Manifest& manifestA,
                                                    const Model& b, const Manifest& manifestB,
                                                    const TextPlan& plan, unsigned threads,
                                                    const Toolkit& toolkit) {
  TextPlan fitted = plan;
  for (const Manifest* manifest : {&manifestA, &manifestB})
    fitted.context = std::min(fitted.context, manifest->capacityValue.value_or(fitted.context));
  const int64_t wanted = std::min(fitted.chunk, fitted.context);
  TextStep extents = textStepOf(a, manifestA, wanted);
  const TextStep ofB = textStepOf(b, manifestB, wanted);
  if (extents.batch != ofB.batch ||
      (extents.isFixed && ofB.isFixed && extents.tokens != ofB.tokens))
    return usageError("the models take steps of different extents: {} tokens in {} batch rows, and "
                      "{} tokens in {}",
                      extents.tokens, extents.batch, ofB.tokens, ofB.batch);
  if (!extents.isFixed)
    extents = {ofB.isFixed ? ofB.tokens : std::min(extents.tokens, ofB.tokens), ofB.batch,
               ofB.isFixed};
  auto readerOfA = TextReader::open(a, manifestA, extents.batch, fitted, threads, toolkit);
  if (!readerOfA)
    return readerOfA.takeError();
  auto readerOfB = TextReader::open(b, manifestB, extents.batch, fitted, threads, toolkit);
  if (!readerOfB)
    return readerOfB.takeError();
  return LikelihoodComparison(std::move(*readerOfA), std::move(*readerOfB), fitted, extents)
      .run(toolkit.progress);
}

} // namespace kvopt::driver
