// Results of kvopt bench, and their formats.
#pragma once

#include "cli/running/machine.h"
#include "cli/support/command.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::cli {

struct Spread {
  double min = 0;
  double low = 0; ///< 10th percentile
  double median = 0;
  double high = 0; ///< 90th percentile
  double max = 0;
};

/// Median. Requires at least one value.
double medianOf(std::vector<double> values);
/// Requires at least one value.
Spread spreadOf(std::vector<double> values);
/// 10th percentile; the minimum of fewer than ten values. Requires at least one value.
double bestOf(std::vector<double> values);
/// Median of a[i] / b[i] over the common indices where neither is 0; nullopt if there are none.
/// Disturbances of the machine affect both sides of a pair alike.
std::optional<double> medianRatio(const std::vector<double>& a, const std::vector<double>& b);

/// Whether two estimates of one ratio differ by more than a quarter, so that neither is reliable.
bool disagree(const std::optional<double>& a, const std::optional<double>& b);

/// One model at one depth with one number of threads.
struct BenchRow {
  std::string model; ///< as given by the user
  int64_t depth = 0; ///< number of tokens in the caches before the first measured step
  unsigned threads = 1;
  std::optional<double> prefillTokensPerSecond;
  std::optional<double> prefillRatioToFirst; ///< ratio of times
  std::optional<Spread> decodeMs;            ///< for one token, or one token per row of the batch
  std::optional<double> ratioToFirst;        ///< ratio of decode times, paired by round
  /// Time to read the weights and valid cache rows of such a step once.
  std::optional<Spread> floorMs;
  std::optional<double> fractionOfFloor; ///< floor time / decode time, paired by round
  /// The same two ratios for undisturbed times (`low` on both sides).
  std::optional<double> ratioToFirstAtBest;
  std::optional<double> fractionOfFloorAtBest;
  int64_t weightBytes = 0;    ///< read for the bound
  int64_t cacheBytes = 0;     ///< read for the bound, in the middle of the steps
  int64_t temporaryBytes = 0; ///< for one decode step
  std::string failure;        ///< reason that some or all numbers are missing
};

struct BenchReport {
  Machine machine;
  int64_t promptTokens = 0;
  int64_t decodeTokens = 0;
  int64_t repetitions = 0;
  int64_t batch = 1;
  std::vector<BenchRow> rows;
};

/// The document `kvopt/bench/1`.
OrderedJson benchJson(const BenchReport& report);
/// A table in Markdown for people, after a description of the machine.
SafeText benchMarkdown(const BenchReport& report);
/// CSV (RFC 4180) with one line per row; the first line names the columns.
SafeText benchCsv(const BenchReport& report);

} // namespace kvopt::cli
