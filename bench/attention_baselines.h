// Compares kvopt's attention with ONNX Runtime's, and both with the step's bound (a plain read of
// exactly its keys and values, its multiply-adds), in turns, in one process, on the same memory.
#pragma once

#include "bench/attention_contest.h"
#include "bench/measure.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt {

inline constexpr BaselineSpelling baselineSpellings[] = {
    BaselineSpelling::GroupQuery, BaselineSpelling::Scatter, BaselineSpelling::PastPresent,
    BaselineSpelling::Concat};

/// One engine; times are of one step in one layer, in seconds, as PairedTimes says.
struct BaselineResult {
  std::string missing; ///< why there is nothing else
  double time = 0, ratioP10 = 0, ratioMedian = 0;
  double overOurs = 1; ///< median over all turns of this engine's time over kvopt's
};

struct BaselineRow {
  ContestCase given;
  unsigned threads = 1;
  double bound = 0; ///< seconds, as PairedTimes says
  BaselineResult ours;
  std::vector<BaselineResult> baselines; ///< as baselineSpellings
};

struct BaselineComparison {
  std::vector<ContestCase> cases;
  std::vector<unsigned> threads;
  int rounds = 3;
  int turns = 5;      ///< of a round: every engine runs a step of all layers
  bool spins = false; ///< ONNX Runtime's threads wait at full speed
};

/// Hands out a row for each case and number of threads as soon as it is known. An engine that
/// cannot run a case, or that computes something else, is missing there; kvopt's errors end it all.
llvm::Error compareBaselines(const BaselineComparison& comparison, const OnnxRuntime& runtime,
                             llvm::function_ref<void(const BaselineRow&)> tell);

/// A table in Markdown: ratios to the bound, and in parentheses to kvopt's time.
std::string baselineTableHeading(const OnnxRuntime& runtime);
std::string baselineTableRow(const BaselineRow& row);
/// For each missing engine a line that says so.
std::string missingBaselines(const BaselineRow& row);

} // namespace kvopt
