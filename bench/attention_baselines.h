// Compares kvopt's attention with ONNX Runtime's, and both with the bound of the step (a plain read
// of exactly its keys and values, or its multiply-adds), in turns, in one process, on the same
// memory.
#pragma once

#include "bench/attention_contest.h"
#include "bench/measure.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt {

inline constexpr BaselineSpelling baselineSpellings[] = {
    BaselineSpelling::GroupQuery, BaselineSpelling::Scatter, BaselineSpelling::PastPresent,
    BaselineSpelling::Concat};

/// One engine. Times are for one step of one layer, in seconds; see PairedTimes.
struct BaselineResult {
  std::string missing; ///< reason that there are no times
  double time = 0, ratioP10 = 0, ratioMedian = 0;
  double overOurs = 1; ///< median over all turns of this engine's time divided by kvopt's
};

struct BaselineRow {
  ContestCase given;
  unsigned threads = 1;
  double bound = 0; ///< seconds; see PairedTimes
  BaselineResult ours;
  std::vector<BaselineResult> baselines; ///< in the order of baselineSpellings
};

struct BaselineComparison {
  std::vector<ContestCase> cases;
  std::vector<unsigned> threads;
  int rounds = 3;
  int turns = 5;      ///< turns per round; in each, every engine runs a step of all layers
  bool spins = false; ///< whether ONNX Runtime's threads spin while they wait
};

/// Returns a row for each case and number of threads as soon as it is complete. An engine that
/// cannot run a case, or that computes different results, is missing in the row; errors of kvopt
/// end the comparison.
llvm::Error compareBaselines(const BaselineComparison& comparison, const OnnxRuntime& runtime,
                             llvm::function_ref<void(const BaselineRow&)> tell);

/// Heading of a table in Markdown: ratios to the bound, and in parentheses to kvopt's time.
std::string baselineTableHeading(const OnnxRuntime& runtime);
std::string baselineTableRow(const BaselineRow& row);
/// One line for each missing engine.
std::string missingBaselines(const BaselineRow& row);

} // namespace kvopt
