// The measurement itself: models take turns, so that what disturbs the machine disturbs all alike.
#pragma once

#include "cli/report/bench_report.h"

namespace kvopt::cli {

struct BenchPlan {
  std::vector<std::string> models;
  int64_t promptTokens = 512; ///< of the prefill that is measured; 0: none is
  int64_t decodeTokens = 128; ///< steps of a repetition, from each depth on; 0: none
  std::vector<int64_t> depths = {0, 1024, 4096};
  int64_t repetitions = 5;
  std::vector<unsigned> threads;
  int64_t batch = 1;

  /// Tokens that the longest sequence has.
  int64_t longest() const;
};

struct BenchResult {
  BenchReport report; ///< a row for every number of threads, depth and model, in this order
  /// Of the first failure; Done when there was none.
  ExitCode code = ExitCode::Done;
};

/// Measures everything that can be measured; a model that cannot be read or run, or not as far as
/// a depth, has that said in its rows.
BenchResult runBench(const BenchPlan& plan, const driver::Toolkit& toolkit);

} // namespace kvopt::cli
