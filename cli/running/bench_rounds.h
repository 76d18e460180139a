// Rounds of a measurement. Models take turns, so that disturbances of the machine affect all of
// them alike.
#pragma once

#include "cli/running/bench_report.h"

namespace kvopt::cli {

struct BenchPlan {
  std::vector<std::string> models;
  int64_t promptTokens = 512; ///< tokens of the measured prefill; 0: no prefill
  int64_t decodeTokens = 128; ///< decode steps per repetition, from each depth on; 0: none
  std::vector<int64_t> depths = {0, 1024, 4096};
  int64_t repetitions = 5;
  std::vector<unsigned> threads;
  int64_t batch = 1;

  /// Number of tokens of the longest sequence.
  int64_t longest() const;
};

struct BenchResult {
  BenchReport report; ///< a row for every number of threads, depth and model, in this order
  /// Exit code of the first failure; Done if there was none.
  ExitCode code = ExitCode::Done;
};

/// Measures as much as possible. If a model cannot be read, run, or brought to a depth, its rows
/// say so.
BenchResult runBench(const BenchPlan& plan, const driver::Toolkit& toolkit);

} // namespace kvopt::cli
