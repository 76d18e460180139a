// Comparison of landmarks, files, blocks and sizes of steps with the steps that were run.
#include "driver/verify/coverage.h"

#include "driver/verify/visits.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <set>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

class Coverage {
public:
  Coverage(const CoverageGoal& wantedGoal, VerificationReport& filledReport)
      : goal(wantedGoal), report(filledReport), refusedFrom(wantedGoal.refusedFrom) {}

  void note() {
    for (const VerificationRun& run : report.runs)
      largestDecodeStep = std::max(largestDecodeStep, run.plan.stepTokens);
    if (report.comparison.refusedSteps != 0)
      refusedFrom = std::min(refusedFrom, tokensCovered());
    for (const Landmark& landmark : goal.landmarks)
      if (isVisited(landmark))
        report.visited.push_back(landmark);
    noteVariants();
    noteLastBlock();
    noteGaps();
    noteMetadataLimit();
  }

private:
  int64_t tokensCovered() const {
    int64_t most = 0;
    for (const StepComparison& step : report.comparison.steps)
      most = std::max(most, step.pastTokens + step.tokens);
    return most;
  }

  /// Notes the requested values that no run has.
  template <class Get> void noteMissing(llvm::StringRef what, Get get) {
    std::set<decltype(get(goal.plan.runs.front()))> missing;
    for (const EquivalencePlan& plan : goal.plan.runs)
      missing.insert(get(plan));
    for (const VerificationRun& run : report.runs)
      missing.erase(get(run.plan));
    if (!missing.empty())
      report.noteGap(formatted("{} {}", what, joinedText(missing, ", ")));
  }

  void noteGaps() {
    noteMissing("batch", [](const EquivalencePlan& plan) { return plan.batch; });
    noteMissing("prompt", [](const EquivalencePlan& plan) { return plan.prompt; });
    if (goal.plan.requested.chunks)
      noteMissing("chunks",
                  [](const EquivalencePlan& plan) { return joinedText(plan.chunks, ","); });
    if (goal.plan.requested.steps)
      noteMissing("steps", [](const EquivalencePlan& plan) { return plan.decodeSteps; });
    // For a model that counts tokens by its mask, padding on the left has no meaning.
    const bool isCounted = goal.models.manifestA.padsRight;
    noteMissing("padding", [&](const EquivalencePlan& plan) {
      const bool isMoved = isCounted && plan.padding == Padding::Left;
      return std::string(paddingName(isMoved ? Padding::Right : plan.padding));
    });
    noteUnvisited();
    if (report.comparison.refusedSteps != 0)
      report.noteGap(formatted("{} steps that the first model refuses: {}",
                               report.comparison.refusedSteps, report.comparison.refusal));
    const auto computed =
        llvm::count_if(goal.models.manifestB.caches, [&](const ManifestCache& cache) {
          return llvm::any_of(goal.models.manifestA.caches, [&](const ManifestCache& other) {
            return (other.past == cache.past &&
                    other.holdsAttendedRows != cache.holdsAttendedRows) ||
                   llvm::any_of(cache.replaces, [&](const ManifestReplacement& replaced) {
                     return replaced.past == other.past;
                   });
          });
        });
    if (computed != 0)
      report.noteGap(formatted(
          "the rows of {} caches, which the two models do not keep in the same form", computed));
    int64_t skipped = 0;
    for (const StepComparison& step : report.comparison.steps)
      for (const auto* group : {&step.outputs, &step.caches})
        for (const TensorComparison& tensor : *group)
          skipped += tensor.skipped;
    if (skipped != 0)
      report.noteGap(formatted("{} elements of hidden tokens", skipped));
  }

  /// Whether decode steps were compared on both sides of the landmark.
  bool isVisited(const Landmark& landmark) const {
    return llvm::all_of(pastsAround(landmark, goal.capacity), [&](int64_t past) {
      return llvm::any_of(report.comparison.steps, [&](const StepComparison& step) {
        return step.pastTokens == past && step.tokens <= largestDecodeStep;
      });
    });
  }

  /// Whether a step was compared after `first` to `last` earlier tokens.
  bool isReached(int64_t first, int64_t last) const {
    return llvm::any_of(report.comparison.steps, [&](const StepComparison& step) {
      return step.pastTokens >= first && step.pastTokens <= last;
    });
  }

  /// Adds the part that holds tokens from `first` on to `neverRun`, unless the first model accepts
  /// no tokens there or the user described the runs.
  void noteNeverRun(int64_t first, std::string part) {
    if (goal.plan.visitsLandmarks && first < refusedFrom)
      report.neverRun.push_back(std::move(part));
  }

  void noteVariants() {
    int64_t first = 0;
    for (const ManifestVariant& variant : goal.models.manifestB.variants) {
      if (isReached(first, variant.pastRows))
        ++report.variantsRun;
      else
        noteNeverRun(first, formatted("the variant '{}', which takes steps after {} to {} tokens",
                                      variant.file, first, variant.pastRows));
      first = variant.pastRows + 1;
    }
  }

  void noteLastBlock() {
    const Manifest& manifest = goal.models.manifestB;
    const int64_t room = manifest.capacityValue.value_or(0);
    if (manifest.blockSize < 1 || room < 1)
      return;
    const int64_t first = (room - 1) / manifest.blockSize * manifest.blockSize;
    // The last row that a step can read is the one before the capacity's.
    if (first > 0 && first + 1 < room && !isReached(first + 1, room))
      noteNeverRun(first, formatted("the last block, which holds tokens from {} on", first));
  }

  void noteUnvisited() {
    if (!goal.plan.visitsLandmarks)
      return;
    const int64_t covered = tokensCovered();
    std::vector<int64_t> within;
    const Landmark* beyond = nullptr;
    for (const Landmark& landmark : goal.landmarks) {
      if (isVisited(landmark))
        continue;
      if (landmark.tokens < covered)
        within.push_back(landmark.tokens);
      else if (!beyond && landmark.kind == LandmarkKind::Compared)
        beyond = &landmark;
    }
    if (!within.empty())
      report.noteGap(formatted("decode steps around {} tokens", joinedText(within, ", ")));
    if (beyond)
      report.noteGap(formatted("more than {} tokens, although {} compares with {}", covered,
                               beyond->node, beyond->tokens));
  }

  void noteMetadataLimit() {
    if (goal.plan.tokens() > tokensCovered() &&
        limitsByMetadata(goal.models.b.graph(), goal.models.manifestB))
      report.limitedByMetadata = formatted(
          "nothing after token {} was compared: the capacity of {} is stated by the second "
          "model's metadata, not by its graph",
          tokensCovered(), *goal.models.manifestB.capacityValue);
  }

  const CoverageGoal& goal;
  VerificationReport& report;
  int64_t refusedFrom;
  int64_t largestDecodeStep = 1;
};

} // namespace

void noteCoverage(const CoverageGoal& goal, VerificationReport& report) {
  Coverage(goal, report).note();
}

} // namespace kvopt::driver
