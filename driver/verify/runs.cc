// Fitting of runs to two models, comparison, and coverage.
#include "driver/verify/runs.h"

#include "driver/verify/cold_start.h"
#include "driver/verify/coverage.h"
#include "driver/verify/visits.h"
#include "passes/analysis/cache/row_lengths.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/progress.h"

#include "llvm/ADT/STLExtras.h"

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
         one.pastRows == other.pastRows && one.padded == other.padded;
}

/// The progress of runs. The unit is a token; each step also costs the number of tokens that
/// corresponds to one read of the weights.
class RunProgress {
public:
  explicit RunProgress(ProgressListener* listener) : progress(listener, "comparing") {}

  void expect(const EquivalencePlan& plan) { progress.expect(costOf(plan)); }

  /// Expects the runs that together cost at most `products`, and returns the rest of that budget.
  int64_t expect(llvm::ArrayRef<EquivalencePlan> plans, int64_t products, int64_t weights) {
    for (const EquivalencePlan& plan : plans) {
      const int64_t tokens = plan.batch * plan.totalTokens();
      if (tokens > products / weights)
        break;
      products -= tokens * weights;
      expect(plan);
    }
    return products;
  }

  /// The plan with a listener that reports its steps here.
  EquivalencePlan reporting(EquivalencePlan plan) {
    running = 0;
    plan.onStep = [this, batch = plan.batch](int64_t tokens) {
      progress.advance(running);
      running = costOfStep(batch * tokens);
    };
    return plan;
  }

  /// Adds a run that is over or was not necessary.
  void complete(const EquivalencePlan& plan) {
    completed += costOf(plan);
    progress.advanceTo(completed);
  }

private:
  static double costOfStep(int64_t tokens) {
    constexpr double weights = 16;
    return weights + static_cast<double>(tokens);
  }

  static double costOf(const EquivalencePlan& plan) {
    const auto laterSteps =
        static_cast<double>(plan.chunks.size()) + static_cast<double>(plan.decodeSteps);
    return costOfStep(plan.batch * plan.totalTokens()) + laterSteps * costOfStep(0);
  }

  Progress progress;
  double running = 0;   ///< units of the current step
  double completed = 0; ///< units of completed runs
};

/// All positions that padding affects, as one step.
DecoderStep wholePrompt(const EquivalencePlan& plan) {
  const int64_t tokens = std::max(plan.prompt, plan.paddedPositions() - plan.pastRows);
  return PlannedSteps(plan).next(tokens, plan.pastRows, /*startsAnew=*/true);
}

/// Whether an input selects the batch rows to continue, according to the graph or the manifest.
bool reordersRows(const Manifest& manifest) {
  return !manifest.reorder.empty() || llvm::any_of(manifest.inputs, [](const ManifestInput& input) {
    return input.feed == InputFeed::BatchRows;
  });
}

/// Landmarks that a plan visits, or whose absence the report states.
std::vector<Landmark> knownLandmarks(const VerificationPlan& plan, const Model& model,
                                     const Manifest& manifest, const Toolkit& toolkit) {
  return plan.visitsLandmarks ? landmarksOfFiles(model, manifest, toolkit.ops)
                              : landmarksOf(model, manifest);
}

/// The reason that the first model refuses the first step; nullopt if it accepts it.
std::optional<Diagnostic> refusalOfFirst(const ComparedModels& models, const EquivalencePlan& plan,
                                         unsigned threads, const Toolkit& toolkit) {
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

class Verification {
public:
  Verification(const ComparedModels& comparedModels, const VerificationPlan& wantedPlan,
               unsigned threadCount, const Toolkit& knownToolkit)
      : models(comparedModels), wanted(wantedPlan), threads(threadCount), toolkit(knownToolkit),
        roomWanted(wantedPlan.tokens()), progress(knownToolkit.progress) {}

  llvm::Expected<VerificationReport> run() {
    noteLandmarks();
    for (const EquivalencePlan& plan : wanted.runs)
      progress.expect(plan);
    rowsAdvanceByMask = models.manifestA.padsRight || countsRowsByInput(models.a.graph());
    report.tolerance = wanted.runs.front().tolerance;
    tokensAtStart = tokensBeforeStart(models.a, models.manifestA, fitted(wanted.runs.front()),
                                      threads, toolkit);
    for (const EquivalencePlan& plan : wanted.runs) {
      if (llvm::Error error = runOnce(plan))
        return error;
      progress.complete(plan);
    }
    if (llvm::Error error = runDeep())
      return error;
    if (wanted.visitsLandmarks)
      if (llvm::Error error = runAroundLandmarks())
        return error;
    noteSessions();
    noteCoverage({models, wanted, landmarks, capacity, refusedFrom}, report);
    return std::move(report);
  }

private:
  /// The plan, fitted to the limits that both models declare.
  EquivalencePlan fitted(EquivalencePlan plan) {
    plan = fittedPlan(std::move(plan), models.b.graph(), models.manifestB, wanted.requested);
    fitTokenInputs(models.a.graph(), models.manifestA, plan);
    fitFixedPast(models.manifestA, plan);
    if (plan.pastRows == 0)
      plan.pastRows = tokensAtStart;
    plan.batch = std::min(plan.batch, mostBatch);
    if (plan.prompt > mostPrompt)
      plan.prompt = std::max(plan.stepTokens, mostPrompt);
    if (!models.manifestA.unpadded.empty() || !models.manifestB.unpadded.empty())
      plan.padding = Padding::None;
    plan.window = narrowest;
    plan.rowsAdvanceByMask = rowsAdvanceByMask;
    if (rowsAdvanceByMask && plan.padding == Padding::Left)
      plan.padding = Padding::Right;
    plan.allowsNearTies |= roundsStates(models.manifestA) || roundsStates(models.manifestB);
    plan.reordersRows = reordersRows(models.manifestA) || reordersRows(models.manifestB);
    if (plan.vocabulary == 0) {
      // If the number of token ids is unknown, only the first two are used.
      auto vocabulary = vocabularyOf(models.a.graph(), models.manifestA.inputs);
      plan.vocabulary = vocabulary ? std::max<int64_t>(1, *vocabulary) : 2;
      llvm::consumeError(vocabulary.takeError());
    }
    return plan;
  }

  llvm::Error runOnce(const EquivalencePlan& plan) {
    EquivalencePlan fit = fitted(plan);
    if (fit.pastRows != plan.pastRows && fit.pastRows != tokensAtStart)
      refusedFrom = 0; // It takes one length only.
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

  /// Compares a run. If the first model refuses it from the start, the run is repeated with one
  /// batch row, then with shorter prompts; `fit` becomes the accepted run. nullopt if such a run
  /// was made before, or if the model refuses the shortest prompt after other runs.
  llvm::Expected<std::optional<ComparisonReport>> compareAsFarAsTaken(EquivalencePlan& fit) {
    const int64_t wantedPrompt = fit.prompt;
    while (!isKnown(fit)) {
      auto compared = compare(fit);
      if (compared)
        return std::move(*compared);
      auto refusal = refusalOfFirst(models, fit, threads, toolkit);
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
        report.noteGap(formatted("the first model refuses a prompt of {}: {}", wantedPrompt,
                                 refusal->message));
        break;
      }
    }
    return std::nullopt;
  }

  /// Repeats a run with equal steps. A model that accepts only the prompt may have been exported
  /// for a fixed, undeclared number of new tokens.
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

  /// Whether an input of the first model hides positions.
  bool takesPadding(const EquivalencePlan& plan) {
    if (llvm::Error error = open(plan)) {
      llvm::consumeError(std::move(error));
      return true; // the run will fail with the same error
    }
    EquivalencePlan shown = plan;
    shown.padding = Padding::None;
    auto inputsOf = [&](const EquivalencePlan& each) {
      const DecoderStep step = wholePrompt(each);
      return decoderInputs(*sessionA, step);
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

  /// Makes the run with the number of tokens that the user requested.
  llvm::Error runDeep() {
    if (wanted.depth <= 0)
      return llvm::Error::success();
    const int64_t tokens = std::min(wanted.depth, capacity);
    if (tokens < wanted.depth)
      report.noteGap(
          formatted("tokens {} to {}, which are beyond the capacity", tokens + 1, wanted.depth));
    const EquivalencePlan plan = deepRun(wanted.runs.front(), tokens);
    progress.expect(plan);
    if (llvm::Error error = runOnce(plan))
      return error;
    progress.complete(plan);
    return llvm::Error::success();
  }

  void noteLandmarks() {
    std::vector<Landmark> ofFirst = knownLandmarks(wanted, models.a, models.manifestA, toolkit);
    for (const Landmark& landmark : ofFirst)
      if (landmark.kind == LandmarkKind::Window || landmark.kind == LandmarkKind::Ring ||
          landmark.kind == LandmarkKind::Compared) {
        narrowest = landmark.tokens;
        break;
      }
    landmarks = joinedLandmarks(std::move(ofFirst),
                                knownLandmarks(wanted, models.b, models.manifestB, toolkit));
    capacity = std::min(capacityOf(models.manifestA), capacityOf(models.manifestB));
  }

  /// Visits first the landmarks of the form, then the numbers with which the graphs compare, and
  /// then runs steps and batches of their sizes, the cheapest first.
  llvm::Error runAroundLandmarks() {
    const EquivalencePlan& like = wanted.runs.front();
    std::vector<Landmark> ofForm, compared;
    for (const Landmark& landmark : landmarks)
      (landmark.kind == LandmarkKind::Compared ? compared : ofForm).push_back(landmark);
    std::vector<EquivalencePlan> visits = visitsOf(ofForm, like, capacity);
    for (EquivalencePlan& plan : visitsOf(compared, like, capacity))
      visits.push_back(std::move(plan));
    const int64_t weights = weightCount(models.a.graph());
    llvm::erase_if(visits, [&](EquivalencePlan& plan) {
      return !fitRows(plan, {&models.manifestA, &models.manifestB}, weights);
    });
    for (const EquivalencePlan& plan : visits)
      roomWanted = std::max(roomWanted, plan.pastRows + plan.totalTokens());
    const std::vector<EquivalencePlan> sizes = sizesAround(landmarks, like, capacity);
    int64_t products = productsForVisits(wanted.runs, weights);
    progress.expect(sizes, progress.expect(visits, products, weights), weights);
    if (llvm::Error error = visitAll(visits, products))
      return error;
    if (!visits.empty() && visitsFromRows == 0)
      if (auto through = runThrough(landmarks, like, capacity, affordableTokens(models.a.graph())))
        if (llvm::Error error = runOnce(*through))
          return error;
    if (llvm::Error error = visitAll(sizes, products))
      return error;
    return runInOnePiece();
  }

  /// Makes the runs until they have cost `products`, and reduces `products` by their cost.
  llvm::Error visitAll(llvm::ArrayRef<EquivalencePlan> plans, int64_t& products) {
    const int64_t weights = weightCount(models.a.graph());
    for (const EquivalencePlan& plan : plans) {
      const int64_t tokens = plan.batch * plan.totalTokens();
      if (tokens > products / weights) {
        report.noteGap(formatted("steps of up to {} tokens, with which lengths are compared",
                                 plans.back().prompt));
        break;
      }
      products -= tokens * weights;
      if (llvm::Error error = visit(plan))
        return error;
      progress.complete(plan);
    }
    return llvm::Error::success();
  }

  /// Also compares the single file of a model in pieces: sessions do not run it, but engines may.
  llvm::Error runInOnePiece() {
    if (!models.manifestB.tiles)
      return llvm::Error::success();
    noteSessions();
    Manifest whole = models.manifestB;
    whole.tiles.reset();
    const ComparedModels inOnePiece{models.a,        models.manifestA, models.b,           whole,
                                    models.firstOfB, models.twin,      models.unitRoundoff};
    EquivalencePlan quick = quickVerification();
    quick.allowsNearTies = roundsStates(models.manifestB);
    quick.seed = wanted.runs.front().seed;
    quick.recipes = wanted.runs.front().recipes;
    quick.tolerance = wanted.runs.front().tolerance;
    VerificationPlan plan(std::move(quick));
    plan.visitsLandmarks = true;
    auto compared = runVerification(inOnePiece, plan, threads, toolkit);
    if (!compared)
      return compared.takeError();
    for (std::string& difference : compared->comparison.differences)
      difference = "the model in one piece: " + difference;
    for (std::string& part : compared->neverRun)
      report.neverRun.push_back("of the model in one piece, " + part);
    report.comparesInOnePiece = !compared->runs.empty();
    report.cacheBytesWritten += compared->cacheBytesWritten;
    report.cacheBytesCopied += compared->cacheBytesCopied;
    const size_t runs = report.runs.size();
    add(compared->runs.front().plan, std::move(compared->comparison));
    report.runs.resize(runs);
    for (VerificationRun& run : compared->runs)
      report.runs.push_back(std::move(run));
    return llvm::Error::success();
  }

  /// Makes a run around a landmark. If the first model refuses it, for example because of the
  /// length of its table of positions, the other runs still count.
  llvm::Error visit(const EquivalencePlan& plan) {
    const EquivalencePlan fit = fitted(plan);
    // Models that take several tokens at a time cannot reach every length.
    if (fit.pastRows + fit.totalTokens() > capacity || fit.pastRows != plan.pastRows ||
        (plan.pastRows == 0 && fit.batch != plan.batch) || isKnown(fit))
      return llvm::Error::success();
    auto compared = compare(fit);
    if (compared) {
      visitsFromRows += fit.pastRows > 0 ? 1 : 0;
      add(fit, std::move(*compared));
      return llvm::Error::success();
    }
    if (compared.errorIsA<PresetError>()) {
      llvm::consumeError(compared.takeError());
      return llvm::Error::success(); // noteUnvisited says so
    }
    auto refusal = refusalOfFirst(models, fit, threads, toolkit);
    if (!refusal)
      return compared.takeError();
    llvm::consumeError(compared.takeError());
    refusedFrom = std::min(refusedFrom, fit.pastRows + fit.prompt);
    report.noteGap(formatted("a step of {} after {} tokens, which the first model refuses: {}",
                             fit.prompt, fit.pastRows, refusal->message));
    return llvm::Error::success();
  }

  /// Opens sessions of both models, with length 0 and room for the plan.
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
    return compareSessions(*sessionA, *sessionB, progress.reporting(plan), exact,
                           sessionFirst.get());
  }

  void add(const EquivalencePlan& plan, ComparisonReport compared) {
    report.runs.push_back({plan, compared.steps.size()});
    ComparisonReport& all = report.comparison;
    all.hasCaches |= compared.hasCaches;
    all.tokensEqual &= compared.tokensEqual;
    all.visibleTokensEqual &= compared.visibleTokensEqual;
    all.anyToken |= compared.anyToken;
    all.refusedSteps += compared.refusedSteps;
    if (all.refusal.empty())
      all.refusal = compared.refusal;
    for (std::string& difference : compared.differences)
      if (!llvm::is_contained(all.differences, difference))
        all.differences.push_back(std::move(difference));
    std::move(compared.steps.begin(), compared.steps.end(), std::back_inserter(all.steps));
  }

  /// Adds the statistics of the second model's sessions to the report, before the sessions end.
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

  const ComparedModels& models;
  const VerificationPlan& wanted;
  unsigned threads;
  const Toolkit& toolkit;
  int64_t roomWanted;
  int64_t mostBatch = INT64_MAX;
  int64_t mostPrompt = INT64_MAX;
  std::vector<Landmark> landmarks; ///< joined from both models
  int64_t capacity = INT64_MAX;    ///< the smaller one of both models
  int64_t narrowest = 0;           ///< number of keys that a token of the first model sees; 0: all
  size_t visitsFromRows = 0;
  /// Number of tokens before which the first model reads rows that no token wrote.
  int64_t tokensAtStart = 0;
  /// Number of tokens from which on the first model refuses steps.
  int64_t refusedFrom = INT64_MAX;
  bool rowsAdvanceByMask = false;
  VerificationReport report;
  RunProgress progress;

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
