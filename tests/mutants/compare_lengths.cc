// Compares a mutant with the model that it was made of at every length up to the capacity:
//
//   compare_lengths MUTANT MODEL [--tokens N]
//
// Steps of one token and chunks of several sizes begin and end at every length, in batches of 1 to
// 3, without padding and with it. The mutant is driven by its own manifest and by the model's, so
// that no limit in its metadata keeps a run from being made; a model in pieces is also run whole.
// Prints the first difference. Exit codes: 0 equal, 1 different, 3 the mutant
// cannot be run, 2 the model cannot be run.
#include "driver/verify/verification.h"
#include "ir/model.h"
#include "passes/analysis/cache/row_lengths.h"
#include "passes/unrounding/widened_model.h"
#include "runtime/equivalence/equivalence.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <cstdio>
#include <cstdlib>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;
using namespace unrounding;

namespace {

/// Tokens of the longest run of models whose caches grow without a limit.
constexpr int64_t openTokens = 48;

struct Driven {
  const Model& model;
  Manifest manifest;
};

/// All runs of two driven models.
class LengthComparison {
public:
  LengthComparison(const Driven& comparedModel, const Driven& comparedMutant,
                   const Model* firstOfMutant, int64_t mostTokens, const Toolkit& knownToolkit)
      : model(comparedModel), mutant(comparedMutant), firstStep(firstOfMutant), tokens(mostTokens),
        toolkit(knownToolkit) {}

  /// Runs every plan until one of them shows a difference.
  void run() {
    decode(1, 1);
    for (int64_t size : {2, 3, 5, 8, 16})
      for (int64_t prompt = 1; prompt <= size; prompt += size > 3 ? size - 1 : 1)
        chunks(1, prompt, size);
    for (int64_t prompt = 2; prompt <= tokens; prompt += prompt < 20 ? 1 : 5)
      compare(plan(1, prompt, {}, 2));
    decode(3, 1);
    for (int64_t prompt : {2, 5, 9, 20, 33}) {
      decode(2, prompt);
      chunks(3, prompt, 3);
      for (Padding padding : {Padding::Left, Padding::Right}) {
        if (!model.manifest.unpadded.empty())
          continue;
        EquivalencePlan padded = plan(3, prompt, {3, 2}, prompt == 5 ? tokens - prompt - 5 : 3);
        padded.padding = padding;
        compare(padded);
      }
    }
    shift();
  }

  /// The run and its first difference; empty without one.
  std::string difference;
  /// Why the mutant cannot be run at all; empty where it can.
  std::string failure;
  /// Runs that the model takes.
  size_t compared = 0;

private:
  EquivalencePlan plan(int64_t batch, int64_t prompt, std::vector<int64_t> chunkSizes,
                       int64_t decodeSteps) const {
    EquivalencePlan made;
    made.batch = batch;
    made.prompt = prompt;
    made.chunks = std::move(chunkSizes);
    made.decodeSteps = 0;
    made.decodeSteps = std::max<int64_t>(0, std::min(decodeSteps, tokens - made.totalTokens()));
    made.tolerance = toleranceFor(model.model.graph(), 2);
    made.rowsAdvanceByMask = analysis::countsRowsByInput(model.model.graph());
    made.reordersRows = !model.manifest.reorder.empty();
    for (const ManifestCache& cache : model.manifest.caches)
      if (cache.window > 0)
        made.window = made.window == 0 ? cache.window : std::min(made.window, cache.window);
    auto vocabulary = vocabularyOf(model.model.graph(), model.manifest.inputs);
    made.vocabulary = vocabulary ? std::max<int64_t>(1, *vocabulary) : 2;
    llvm::consumeError(vocabulary.takeError());
    return made;
  }

  /// One token at a time after a prompt.
  void decode(int64_t batch, int64_t prompt) {
    if (prompt <= tokens)
      compare(plan(batch, prompt, {}, tokens - prompt));
  }

  /// Chunks of `size` tokens up to the capacity, the last one as long as what is left.
  void chunks(int64_t batch, int64_t prompt, int64_t size) {
    std::vector<int64_t> sizes;
    for (int64_t left = tokens - prompt; left > 0; left -= sizes.back())
      sizes.push_back(std::min(left, size));
    if (prompt <= tokens)
      compare(plan(batch, prompt, std::move(sizes), 0));
  }

  bool isOver() const { return !failure.empty() || !difference.empty(); }

  /// Whether the manifest that the mutant is driven by excludes the plan. That limits how the
  /// mutant is used and does not change its results.
  bool isRuledOut(const EquivalencePlan& run) const {
    int64_t longest = run.prompt;
    for (int64_t chunk : run.chunks)
      longest = std::max(longest, chunk);
    return longest > mutant.manifest.stepLimit.value_or(longest) ||
           (run.padding != Padding::None && !mutant.manifest.unpadded.empty());
  }

  /// Runs a plan. One that the model itself does not take is left out.
  void compare(const EquivalencePlan& run) {
    if (isOver() || isRuledOut(run) || !open(run.batch))
      return;
    auto report = compareSessions(*sessionOfModel, *sessionOfMutant, run, {}, sessionOfFirst.get());
    if (report) {
      ++compared;
      note(*report, describe(run));
      return;
    }
    const Diagnostic problem = takeDiagnostic(report.takeError());
    if (takesAlone(run))
      difference = describe(run) + ": the mutant fails: " + problem.str();
    sessionOfModel.reset();
  }

  /// Whether the model takes a plan together with a second session of its own.
  bool takesAlone(const EquivalencePlan& run) const {
    auto one = openForTokens(model.model, model.manifest, run.batch, tokens, 1, toolkit);
    auto other = openForTokens(model.model, model.manifest, run.batch, tokens, 1, toolkit);
    bool taken = false;
    if (one && other) {
      auto report = compareSessions(**one, **other, run);
      taken = bool(report);
      llvm::consumeError(report.takeError());
    }
    llvm::consumeError(one.takeError());
    llvm::consumeError(other.takeError());
    return taken;
  }

  static std::string describe(const EquivalencePlan& run) {
    std::string chunkSizes;
    for (int64_t chunk : run.chunks)
      chunkSizes += (chunkSizes.empty() ? "" : ",") + std::to_string(chunk);
    return formatted("batch {}, prompt {}, chunks {}, {} decode steps, {} padding", run.batch,
                     run.prompt, chunkSizes.empty() ? "none" : chunkSizes, run.decodeSteps,
                     run.padding == Padding::None   ? "no"
                     : run.padding == Padding::Left ? "left"
                                                    : "right");
  }

  void note(const ComparisonReport& report, const std::string& where) {
    const TensorComparison* worst = report.worst();
    if (!report.differences.empty())
      difference = where + ": " + report.differences.front();
    else if (report.isDifferent())
      difference = formatted("{}: {} by {:.1e}", where, worst ? worst->name : "an output",
                             worst ? worst->comparison.maxAbs : 0.0);
    else if (!report.tokensEqual)
      difference = where + ": other tokens";
  }

  /// Both sessions at length 0; false where one of them does not open.
  bool open(int64_t batch) {
    if (sessionOfModel && sessionOfModel->batch() == batch) {
      llvm::Error error = llvm::joinErrors(sessionOfModel->reset(), sessionOfMutant->reset());
      if (!error)
        return true;
      llvm::consumeError(std::move(error));
    }
    sessionOfModel.reset();
    auto ofModel = openForTokens(model.model, model.manifest, batch, tokens, 1, toolkit);
    if (!ofModel) {
      llvm::consumeError(ofModel.takeError());
      return false;
    }
    auto ofMutant = openForTokens(mutant.model, mutant.manifest, batch, tokens, 1, toolkit);
    if (!ofMutant) {
      failure = takeDiagnostic(ofMutant.takeError()).str();
      return false;
    }
    if (firstStep) {
      auto ofFirst = openForTokens(*firstStep, Manifest(), batch, tokens, 1, toolkit);
      if (!ofFirst) {
        failure = takeDiagnostic(ofFirst.takeError()).str();
        return false;
      }
      sessionOfFirst = std::move(*ofFirst);
    }
    sessionOfModel = std::move(*ofModel);
    sessionOfMutant = std::move(*ofMutant);
    return true;
  }

  /// Drops tokens from the middle of the caches of both, where both can, and continues.
  void shift() {
    constexpr int64_t keptTokens = 2, droppedTokens = 5;
    if (tokens < 2 * droppedTokens)
      return;
    compare(plan(1, 2 * droppedTokens - 3, {}, 3));
    if (isOver() || !sessionOfModel || sessionOfModel->batch() != 1)
      return;
    for (Session* session : {sessionOfModel.get(), sessionOfMutant.get()})
      if (llvm::Error error = session->shift(keptTokens, droppedTokens)) {
        llvm::consumeError(std::move(error));
        return;
      }
    auto report = compareSessions(*sessionOfModel, *sessionOfMutant, plan(1, 1, {2}, 1));
    if (report)
      note(*report, "after a shift");
    else
      llvm::consumeError(report.takeError());
  }

  const Driven& model;
  const Driven& mutant;
  const Model* firstStep;
  int64_t tokens;
  const Toolkit& toolkit;
  std::unique_ptr<Session> sessionOfModel;
  std::unique_ptr<Session> sessionOfMutant;
  std::unique_ptr<Session> sessionOfFirst;
};

/// The capacity, or what models without one are compared up to.
int64_t tokensOf(const Manifest& manifest) {
  int64_t tokens = manifest.capacityValue.value_or(openTokens);
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Static)
      tokens = std::min(tokens, cache.fixedRows().value_or(tokens));
  return tokens;
}

/// Prints what is wrong and returns the exit code for it.
int end(int code, llvm::Error error) {
  const Diagnostic diagnostic = takeDiagnostic(std::move(error));
  std::printf("%s\n", diagnostic.str().c_str());
  return code;
}

int run(const std::string& mutantPath, const std::string& modelPath, int64_t mostTokens) {
  constexpr int different = 1, modelFails = 2, mutantFails = 3;
  const Toolkit toolkit;
  auto model = prepareModel(modelPath, toolkit);
  if (!model)
    return end(modelFails, model.takeError());
  auto mutant = prepareModel(mutantPath, toolkit);
  if (!mutant)
    return end(mutantFails, mutant.takeError());
  const bool isSameForm = model->manifest.caches.size() == mutant->manifest.caches.size() &&
                          model->manifest.firstStep == mutant->manifest.firstStep;
  std::vector<Manifest> manifests = {mutant->manifest};
  if (isSameForm && mutant->manifest.json() != model->manifest.json())
    manifests.push_back(model->manifest);
  if (mutant->manifest.tiles) {
    manifests.push_back(mutant->manifest);
    manifests.back().tiles.reset();
  }
  Driven drivenModel{*model->model, model->manifest};
  // In 16 bits, the scores of a token that sees none are lost next to the number that hides keys.
  if (narrowNumbersOf(*model->model).unitRoundoff() > 0)
    drivenModel.manifest.hiddenRowsUndefined = true;
  for (const Manifest& manifest : manifests) {
    const bool isOwn = &manifest == &manifests.front();
    // What only its metadata limits is compared beyond that.
    int64_t tokens = tokensOf(model->manifest);
    if (isOwn)
      tokens = std::min(tokens, tokensOf(manifest));
    if (mostTokens > 0)
      tokens = mostTokens;
    const Driven drivenMutant{*mutant->model, manifest};
    LengthComparison comparison(drivenModel, drivenMutant, mutant->firstStep.get(), tokens,
                                toolkit);
    comparison.run();
    if (!comparison.difference.empty()) {
      const char* how = isOwn                                       ? ""
                        : manifest.tiles || !mutant->manifest.tiles ? "driven as the model is: "
                                                                    : "run whole: ";
      std::printf("%s%s\n", how, comparison.difference.c_str());
      return different;
    }
    // Another manifest than its own need not fit the mutant.
    if (isOwn && !comparison.failure.empty()) {
      std::printf("%s\n", comparison.failure.c_str());
      return mutantFails;
    }
    if (isOwn && comparison.compared == 0) {
      std::printf("the model takes no run\n");
      return modelFails;
    }
  }
  return 0;
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  int64_t tokens = 0;
  if (argc == 5 && llvm::StringRef(argv[3]) == "--tokens")
    tokens = std::atoll(argv[4]);
  else if (argc != 3) {
    std::fprintf(stderr, "usage: compare_lengths MUTANT MODEL [--tokens N]\n");
    return 2;
  }
  return kvopt::run(argv[1], argv[2], tokens);
}
