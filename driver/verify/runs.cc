// Fits runs to two models, compares them, and keeps account of what was covered.
#include "driver/verify/runs.h"

#include "passes/analysis/cache/row_lengths.h"
#include "passes/analysis/mask/compared_lengths.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

bool isSameRun(const EquivalencePlan& one, const EquivalencePlan& other) {
  return one.batch == other.batch && one.prompt == other.prompt && one.chunks == other.chunks &&
         one.decodeSteps == other.decodeSteps && one.padding == other.padding &&
         one.pastRows == other.pastRows;
}

class Verification {
public:
  Verification(const ComparedModels& comparedModels, const VerificationPlan& wantedPlan,
               unsigned threadCount, const Toolkit& knownToolkit)
      : models(comparedModels), wanted(wantedPlan), threads(threadCount), toolkit(knownToolkit),
        roomWanted(wantedPlan.tokens()) {}

  llvm::Expected<VerificationReport> run() {
    noteLengths();
    rowsAdvanceByMask = countsRowsByInput(models.a.graph());
    report.tolerance = wanted.runs.front().tolerance;
    for (const EquivalencePlan& plan : wanted.runs)
      if (llvm::Error error = runOnce(plan))
        return error;
    if (llvm::Error error = runDeep())
      return error;
    noteSessions();
    noteGaps();
    noteMetadataLimit();
    return std::move(report);
  }

private:
  /// What both models can start with.
  EquivalencePlan fitted(EquivalencePlan plan) {
    plan = fittedPlan(std::move(plan), models.b.graph(), models.manifestB);
    fitTokenInputs(models.a.graph(), models.manifestA, plan);
    fitFixedPast(models.manifestA, plan);
    plan.batch = std::min(plan.batch, mostBatch);
    if (plan.prompt > mostPrompt)
      plan.prompt = std::max(plan.stepTokens, mostPrompt);
    if (!models.manifestA.unpadded.empty() || !models.manifestB.unpadded.empty())
      plan.padding = Padding::None;
    plan.window = narrowest;
    plan.rowsAdvanceByMask = rowsAdvanceByMask;
    plan.reordersRows = !models.manifestA.reorder.empty() || !models.manifestB.reorder.empty();
    if (plan.vocabulary == 0) {
      // Where the number of token ids is not known, the first two are taken.
      auto vocabulary = vocabularyOf(models.a.graph(), models.manifestA.inputs);
      plan.vocabulary = vocabulary ? std::max<int64_t>(1, *vocabulary) : 2;
      llvm::consumeError(vocabulary.takeError());
    }
    return plan;
  }

  llvm::Error runOnce(const EquivalencePlan& plan) {
    EquivalencePlan fit = fitted(plan);
    if (fit.padding != Padding::None && !takesPadding(fit))
      fit.padding = Padding::None;
    auto compared = compareAsFarAsTaken(fit);
    if (!compared)
      return compared.takeError();
    if (!*compared)
      return llvm::Error::success();
    retryWithEqualSteps(fit, **compared);
    add(fit, std::move(**compared));
    return llvm::Error::success();
  }

  /// What the first model refuses from the start it gets again with one batch row, then with
  /// shorter prompts; `fit` becomes what it takes. nullopt if such a run was made before, or if it
  /// refuses the shortest prompt after other runs.
  llvm::Expected<std::optional<ComparisonReport>> compareAsFarAsTaken(EquivalencePlan& fit) {
    const int64_t wantedPrompt = fit.prompt;
    while (!isKnown(fit)) {
      auto compared = compare(fit);
      if (compared)
        return std::move(*compared);
      auto refusal = refusalOfFirst(fit);
      if (!refusal)
        return compared.takeError();
      llvm::consumeError(compared.takeError());
      if (fit.batch > 1) {
        mostBatch = fit.batch = 1;
      } else if (fit.prompt > fit.stepTokens) {
        mostPrompt = fit.prompt = std::max(fit.stepTokens, fit.prompt / 2);
      } else if (refusal->kind == Diagnostic::Kind::Usage) {
        return makeError(std::move(*refusal));
      } else if (report.runs.empty()) {
        return llvm::make_error<OriginalRefusal>(std::move(*refusal));
      } else {
        noteGap(fmt::format("a prompt of {}, which the first model refuses: {}", wantedPrompt,
                            refusal->message));
        break;
      }
    }
    return std::nullopt;
  }

  /// A model that took the prompt and nothing after it may have been exported for a fixed number of
  /// new tokens, which no declaration states.
  void retryWithEqualSteps(EquivalencePlan& fit, ComparisonReport& compared) {
    if (!compared.hasCaches || compared.steps.size() != 1 || compared.refusedSteps == 0 ||
        fit.prompt == fit.stepTokens)
      return;
    EquivalencePlan alike = fit;
    alike.stepTokens = alike.prompt;
    alike.chunks.clear();
    alike.decodeSteps = 2;
    auto again = compare(alike);
    if (!again) {
      llvm::consumeError(again.takeError());
    } else if (again->steps.size() > 1) {
      fit = std::move(alike);
      compared = std::move(*again);
    }
  }

  void noteGap(std::string gap) {
    if (!llvm::is_contained(report.notCovered, gap))
      report.notCovered.push_back(std::move(gap));
  }

  /// Whether an input of the first model says which positions are hidden.
  bool takesPadding(const EquivalencePlan& plan) {
    if (llvm::Error error = open(plan)) {
      llvm::consumeError(std::move(error));
      return true; // the run will fail with the same error
    }
    EquivalencePlan shown = plan;
    shown.padding = Padding::None;
    auto inputsOf = [&](const EquivalencePlan& each) {
      const DecoderStep step = PlannedSteps(each).next(each.prompt, 0, /*startsAnew=*/true);
      return decoderInputs(sessionA->callerInputs(), step, sessionA->allocator(),
                           models.manifestA.inputs);
    };
    auto padded = inputsOf(plan);
    auto full = inputsOf(shown);
    if (!padded || !full) {
      llvm::consumeError(padded.takeError());
      llvm::consumeError(full.takeError());
      return true;
    }
    for (size_t i = 0; i < padded->size(); ++i) {
      const TensorView& one = (*padded)[i].tensor.view;
      const TensorView& other = (*full)[i].tensor.view;
      if (std::memcmp(one.data, other.data, static_cast<size_t>(one.byteSize())) != 0)
        return true;
    }
    return false;
  }

  bool isKnown(const EquivalencePlan& plan) const {
    return llvm::any_of(report.runs,
                        [&](const VerificationRun& run) { return isSameRun(run.plan, plan); });
  }

  /// A run that passes the lengths that something is compared with.
  llvm::Error runDeep() {
    const int64_t most = std::min(wanted.deepest, affordableTokens(models.a.graph()));
    int64_t deepest = 0;
    for (const ComparedLength& length : lengths)
      if (length.tokens >= tokensCovered() && length.tokens <= most)
        deepest = length.tokens;
    if (deepest == 0 || models.manifestB.capacityValue.value_or(INT64_MAX) <= tokensCovered())
      return llvm::Error::success();
    return runOnce(deepRun(wanted.runs.front(), deepest));
  }

  static std::vector<ComparedLength> lengthsOf(const Model& model, const Manifest& manifest) {
    std::vector<std::string> tokens;
    for (const Value* input : tokenInputs(model.graph(), manifest.inputs))
      tokens.push_back(input->name().str());
    return comparedLengths(model, tokens);
  }

  void noteLengths() {
    lengths = lengthsOf(models.a, models.manifestA);
    if (!lengths.empty())
      narrowest = lengths.front().tokens;
    for (const ManifestCache& cache : models.manifestA.caches)
      if (cache.window > 0)
        narrowest = narrowest == 0 ? cache.window : std::min(narrowest, cache.window);
    for (ComparedLength& length : lengthsOf(models.b, models.manifestB))
      lengths.push_back(std::move(length));
    llvm::stable_sort(lengths, [](const ComparedLength& one, const ComparedLength& other) {
      return one.tokens < other.tokens;
    });
  }

  /// The sessions of both models, from length 0, with room for the plan.
  llvm::Error open(const EquivalencePlan& plan) {
    const int64_t tokens = plan.pastRows + plan.totalTokens();
    if (sessionA && sessionA->batch() == plan.batch && tokens <= room) {
      llvm::Error error = llvm::joinErrors(sessionA->reset(), sessionB->reset());
      if (sessionTwin)
        error = llvm::joinErrors(std::move(error), sessionTwin->reset());
      if (!error)
        return error;
      llvm::consumeError(std::move(error));
    }
    noteSessions();
    room = std::max(roomWanted, tokens);
    auto openOne = [&](const Model& model, const Manifest& manifest) {
      return openForTokens(model, manifest, plan.batch, room, threads, toolkit);
    };
    auto openedA = openOne(models.a, models.manifestA);
    if (!openedA)
      return openedA.takeError();
    auto openedB = openOne(models.b, models.manifestB);
    if (!openedB)
      return openedB.takeError();
    if (models.firstOfB) {
      auto opened = openOne(*models.firstOfB, Manifest());
      if (!opened)
        return opened.takeError();
      sessionFirst = std::move(*opened);
    }
    sessionA = std::move(*openedA);
    sessionB = std::move(*openedB);
    if (!models.twin)
      return llvm::Error::success();
    if (auto openedTwin = openOne(*models.twin->model, models.twin->manifest))
      sessionTwin = std::move(*openedTwin);
    else
      llvm::consumeError(openedTwin.takeError());
    return llvm::Error::success();
  }

  llvm::Expected<ComparisonReport> compare(const EquivalencePlan& plan) {
    if (llvm::Error error = open(plan))
      return error;
    report.guessed = guessedInputs(sessionA->callerInputs(), plan.recipes, models.manifestA.inputs);
    std::optional<ExactSession> exact;
    if (sessionTwin)
      exact.emplace(ExactSession{*sessionTwin, models.unitRoundoff});
    return compareSessions(*sessionA, *sessionB, plan, exact, sessionFirst.get());
  }

  /// Why the first model does not take the first step; nullopt where it does.
  std::optional<Diagnostic> refusalOfFirst(const EquivalencePlan& plan) {
    auto alone = openForTokens(models.a, models.manifestA, plan.batch,
                               plan.pastRows + plan.totalTokens(), threads, toolkit);
    if (!alone) {
      llvm::consumeError(alone.takeError());
      return std::nullopt;
    }
    if (plan.pastRows > 0)
      if (llvm::Error error = (*alone)->preset(plan.pastRows)) {
        llvm::consumeError(std::move(error));
        return std::nullopt;
      }
    DecoderStep prefill;
    prefill.recipes = plan.recipes;
    prefill.pastLength = plan.pastRows;
    prefill.tokens.assign(static_cast<size_t>(plan.batch),
                          std::vector<int64_t>(static_cast<size_t>(plan.prompt), 0));
    auto result = stepDecoder(**alone, prefill);
    if (result)
      return std::nullopt;
    return takeDiagnostic(result.takeError());
  }

  void add(const EquivalencePlan& plan, ComparisonReport compared) {
    report.runs.push_back({plan, compared.steps.size()});
    ComparisonReport& all = report.comparison;
    all.hasCaches |= compared.hasCaches;
    all.tokensEqual &= compared.tokensEqual;
    all.anyToken |= compared.anyToken;
    all.refusedSteps += compared.refusedSteps;
    if (all.refusal.empty())
      all.refusal = compared.refusal;
    for (std::string& difference : compared.differences)
      if (!llvm::is_contained(all.differences, difference))
        all.differences.push_back(std::move(difference));
    std::move(compared.steps.begin(), compared.steps.end(), std::back_inserter(all.steps));
  }

  /// Takes down what the sessions of the second model did, before they go.
  void noteSessions() {
    if (sessionB) {
      report.cacheBytesWritten += sessionB->statistics().cacheBytesWritten;
      report.cacheBytesCopied += sessionB->statistics().inPlaceBytesCopied;
    }
    sessionA.reset();
    sessionB.reset();
    sessionTwin.reset();
    sessionFirst.reset();
  }

  int64_t tokensCovered() const {
    int64_t most = 0;
    for (const StepComparison& step : report.comparison.steps)
      most = std::max(most, step.pastTokens + step.tokens);
    return most;
  }

  /// Says which of the wanted values no run has.
  template <class Get> void noteMissing(llvm::StringRef what, Get get) {
    std::set<decltype(get(wanted.runs.front()))> missing;
    for (const EquivalencePlan& plan : wanted.runs)
      missing.insert(get(plan));
    for (const VerificationRun& run : report.runs)
      missing.erase(get(run.plan));
    if (!missing.empty())
      noteGap(fmt::format("{} {}", what, fmt::join(missing, ", ")));
  }

  void noteGaps() {
    noteMissing("batch", [](const EquivalencePlan& plan) { return plan.batch; });
    noteMissing("prompt", [](const EquivalencePlan& plan) { return plan.prompt; });
    noteMissing("padding",
                [](const EquivalencePlan& plan) { return std::string(paddingName(plan.padding)); });
    const int64_t covered = tokensCovered();
    const auto beyond =
        llvm::find_if(lengths, [&](const ComparedLength& each) { return each.tokens >= covered; });
    if (beyond != lengths.end())
      noteGap(fmt::format("more than {} tokens, although {} compares with {}", covered,
                          beyond->where, lengths.back().tokens));
    if (report.comparison.refusedSteps != 0)
      noteGap(fmt::format("{} steps that the first model refuses: {}",
                          report.comparison.refusedSteps, report.comparison.refusal));
    const auto computed = llvm::count_if(models.manifestB.caches, [&](const ManifestCache& cache) {
      return llvm::any_of(models.manifestA.caches, [&](const ManifestCache& other) {
        return (other.past == cache.past && other.holdsAttendedRows != cache.holdsAttendedRows) ||
               llvm::any_of(cache.replaces, [&](const ManifestReplacement& replaced) {
                 return replaced.past == other.past;
               });
      });
    });
    if (computed != 0)
      noteGap(fmt::format(
          "the rows of {} caches, which the two models do not keep in the same form", computed));
    int64_t skipped = 0;
    for (const StepComparison& step : report.comparison.steps)
      for (const auto* group : {&step.outputs, &step.caches})
        for (const TensorComparison& tensor : *group)
          skipped += tensor.skipped;
    if (skipped != 0)
      noteGap(fmt::format("{} elements of hidden tokens", skipped));
  }

  void noteMetadataLimit() {
    if (wanted.tokens() > tokensCovered() && limitsByMetadata(models.b.graph(), models.manifestB))
      report.limitedByMetadata = fmt::format(
          "nothing after token {} was compared: the capacity of {} is stated by the second "
          "model's metadata, not by its graph",
          tokensCovered(), *models.manifestB.capacityValue);
  }

  const ComparedModels& models;
  const VerificationPlan& wanted;
  unsigned threads;
  const Toolkit& toolkit;
  int64_t roomWanted;
  int64_t mostBatch = INT64_MAX;
  int64_t mostPrompt = INT64_MAX;
  std::vector<ComparedLength> lengths; ///< of both models, ascending
  int64_t narrowest = 0;               ///< of the first model; 0 without any
  bool rowsAdvanceByMask = false;
  VerificationReport report;

  std::unique_ptr<Session> sessionA;
  std::unique_ptr<Session> sessionB;
  std::unique_ptr<Session> sessionTwin;
  std::unique_ptr<Session> sessionFirst;
  int64_t room = 0;
};

} // namespace

llvm::Expected<VerificationReport> runVerification(const ComparedModels& models,
                                                   const VerificationPlan& plan, unsigned threads,
                                                   const Toolkit& toolkit) {
  return Verification(models, plan, threads, toolkit).run();
}

} // namespace kvopt::driver
