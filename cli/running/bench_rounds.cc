// Rounds of a few decode steps per model, each followed by measurements of the model's read floor.
#include "cli/running/bench_rounds.h"

#include "cli/running/bench_subject.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/progress.h"

#include <algorithm>

namespace kvopt::cli {
using namespace driver;
using namespace runtime;

int64_t BenchPlan::longest() const {
  int64_t deepest = depths.empty() ? 0 : *std::max_element(depths.begin(), depths.end());
  return std::max({int64_t{1}, promptTokens, deepest + decodeTokens});
}

namespace {

constexpr int64_t stepsOfARound = 8;
constexpr int floorReadings = 3;

/// Measurements of one model at one depth; times in milliseconds.
struct Samples {
  std::vector<double> steps;
  std::vector<double> roundSteps;  ///< medians, one per round
  std::vector<double> roundFloors; ///< fastest reads, one per round
  double cacheBytes = 0;           ///< summed over the rounds
  int64_t temporaryBytes = 0;
};

struct Entry {
  std::string name;
  std::unique_ptr<BenchSubject> subject;
  std::string failure;                ///< the reason that the model cannot run at all
  std::vector<double> prefillSeconds; ///< one per repetition
  std::string prefillFailure;
  Samples samples;
  std::string depthFailure;

  bool runs() const { return failure.empty(); }
  bool decodes() const { return runs() && depthFailure.empty(); }
};

class Bench {
public:
  Bench(const BenchPlan& benchPlan, const Toolkit& toolkit)
      : plan(benchPlan), known(toolkit), progress(toolkit.progress, "measuring") {}

  BenchResult run() {
    BenchReport& report = result.report;
    report.machine = describeMachine();
    report.promptTokens = plan.promptTokens;
    report.decodeTokens = plan.decodeTokens;
    report.repetitions = plan.repetitions;
    report.batch = plan.batch;
    for (const std::string& model : plan.models)
      open(model);
    const auto depths = static_cast<double>(plan.depths.size());
    progress.expect(static_cast<double>(plan.threads.size()) *
                    (prefillCost() + depths * depthCost()));
    for (unsigned threads : plan.threads)
      measure(threads);
    return std::move(result);
  }

private:
  /// Cost of a decode step, in tokens of a prefill: the step reads the same weights for one token.
  static constexpr double costOfDecoding = 16;

  double prefillCost() const {
    return static_cast<double>(entries.size()) * static_cast<double>(plan.repetitions + 1) *
           static_cast<double>(plan.promptTokens);
  }
  /// Cost of one depth, without the tokens that fill the caches.
  double depthCost() const {
    return static_cast<double>(entries.size()) * static_cast<double>(plan.repetitions) *
           static_cast<double>(plan.decodeTokens) * costOfDecoding;
  }
  /// Adds a completed part to the progress, even if some models failed.
  void complete(double cost) {
    completed += cost;
    progress.advanceTo(completed);
  }

  void open(const std::string& model) {
    Entry entry;
    entry.name = model;
    auto subject = BenchSubject::open(model, known);
    if (subject)
      entry.subject = std::move(*subject);
    else
      entry.failure = textOf(subject.takeError());
    entries.push_back(std::move(entry));
  }

  /// Text of an error; keeps the exit code of the first one.
  std::string textOf(llvm::Error error) {
    Diagnostic diagnostic = takeDiagnostic(std::move(error));
    if (result.code == ExitCode::Done)
      result.code = exitCodeFor(diagnostic.kind);
    return diagnostic.str();
  }

  void measure(unsigned threads) {
    auto pool = std::make_shared<ThreadPool>(threads);
    for (Entry& entry : entries) {
      if (!entry.subject)
        continue;
      entry.failure.clear();
      if (llvm::Error error = entry.subject->start({pool, plan.batch, plan.longest()}))
        entry.failure = textOf(std::move(error));
    }
    measurePrefill();
    complete(prefillCost());
    for (int64_t depth : plan.depths) {
      measureDepth(depth);
      complete(depthCost());
      for (const Entry& entry : entries)
        result.report.rows.push_back(rowOf(entry, depth, threads));
    }
    for (Entry& entry : entries)
      if (entry.subject)
        entry.subject->stop();
  }

  void measurePrefill() {
    for (Entry& entry : entries) {
      entry.prefillSeconds.clear();
      entry.prefillFailure.clear();
    }
    if (plan.promptTokens == 0)
      return;
    // The first repetition is not counted: it touches pages and caches for the first time.
    for (int64_t repetition = -1; repetition < plan.repetitions; ++repetition)
      for (Entry& entry : entries) {
        if (!entry.runs() || !entry.prefillFailure.empty())
          continue;
        auto seconds = entry.subject->prefill(plan.promptTokens);
        progress.advance(static_cast<double>(plan.promptTokens));
        if (!seconds)
          entry.prefillFailure =
              formatted("prefill of {} tokens: {}", plan.promptTokens, textOf(seconds.takeError()));
        else if (repetition >= 0)
          entry.prefillSeconds.push_back(*seconds);
      }
  }

  void measureDepth(int64_t depth) {
    for (Entry& entry : entries) {
      entry.samples = Samples();
      entry.depthFailure.clear();
    }
    if (plan.decodeTokens == 0)
      return;
    // One uncounted step, as above.
    forEachDecoding([&](Entry& entry) {
      if (llvm::Error error = entry.subject->bringTo(depth))
        return error;
      return entry.subject->decode().takeError();
    });
    for (int64_t repetition = 0; repetition < plan.repetitions; ++repetition) {
      forEachDecoding([&](Entry& entry) { return entry.subject->bringTo(depth); });
      for (int64_t done = 0; done < plan.decodeTokens; done += stepsOfARound) {
        int64_t steps = std::min(stepsOfARound, plan.decodeTokens - done);
        forEachDecoding([&](Entry& entry) {
          progress.advance(costOfDecoding * static_cast<double>(steps));
          return measureRound(entry, steps);
        });
      }
    }
  }

  template <class Action> void forEachDecoding(const Action& action) {
    for (Entry& entry : entries)
      if (entry.decodes())
        if (llvm::Error error = action(entry))
          entry.depthFailure = textOf(std::move(error));
  }

  static llvm::Error measureRound(Entry& entry, int64_t steps) {
    Samples& samples = entry.samples;
    std::vector<double> times;
    for (int64_t i = 0; i < steps; ++i) {
      auto seconds = entry.subject->decode();
      if (!seconds)
        return seconds.takeError();
      times.push_back(*seconds * 1e3);
    }
    // The fastest read counts: slower ones were disturbed.
    auto rows = entry.subject->cacheRows();
    if (!rows)
      return rows.takeError();
    double floor = entry.subject->readFloor(*rows) * 1e3;
    for (int i = 1; i < floorReadings; ++i)
      floor = std::min(floor, entry.subject->readFloor(*rows) * 1e3);
    samples.steps.insert(samples.steps.end(), times.begin(), times.end());
    samples.roundSteps.push_back(medianOf(std::move(times)));
    samples.roundFloors.push_back(floor);
    samples.cacheBytes += static_cast<double>(rows->bytes());
    samples.temporaryBytes = std::max(samples.temporaryBytes, entry.subject->temporaryBytes());
    return llvm::Error::success();
  }

  BenchRow rowOf(const Entry& entry, int64_t depth, unsigned threads) const {
    BenchRow row;
    row.model = entry.name;
    row.depth = depth;
    row.threads = threads;
    row.failure = entry.failure;
    if (!entry.runs())
      return row;
    const Entry& first = entries.front();
    row.weightBytes = entry.subject->weightBytes();
    if (!entry.prefillFailure.empty()) {
      row.failure = entry.prefillFailure;
    } else if (!entry.prefillSeconds.empty()) {
      row.prefillTokensPerSecond =
          static_cast<double>(plan.promptTokens * plan.batch) / medianOf(entry.prefillSeconds);
      if (first.runs() && first.prefillFailure.empty())
        row.prefillRatioToFirst = medianRatio(entry.prefillSeconds, first.prefillSeconds);
    }
    if (!entry.depthFailure.empty()) {
      row.failure += (row.failure.empty() ? "" : "; ") + entry.depthFailure;
      return row;
    }
    const Samples& samples = entry.samples;
    if (samples.steps.empty())
      return row;
    row.decodeMs = spreadOf(samples.steps);
    row.floorMs = spreadOf(samples.roundFloors);
    row.fractionOfFloor = medianRatio(samples.roundFloors, samples.roundSteps);
    row.fractionOfFloorAtBest = row.floorMs->low / row.decodeMs->low;
    if (first.decodes()) {
      row.ratioToFirst = medianRatio(samples.roundSteps, first.samples.roundSteps);
      row.ratioToFirstAtBest = row.decodeMs->low / spreadOf(first.samples.steps).low;
    }
    row.cacheBytes =
        static_cast<int64_t>(samples.cacheBytes / static_cast<double>(samples.roundSteps.size()));
    row.temporaryBytes = samples.temporaryBytes;
    return row;
  }

  const BenchPlan& plan;
  const Toolkit& known;
  Progress progress;
  double completed = 0;
  std::vector<Entry> entries;
  BenchResult result;
};

} // namespace

BenchResult runBench(const BenchPlan& plan, const Toolkit& toolkit) {
  return Bench(plan, toolkit).run();
}

} // namespace kvopt::cli
