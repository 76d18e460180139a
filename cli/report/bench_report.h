// What kvopt bench found out, and how it is written down.
#pragma once

#include "cli/report/machine.h"
#include "cli/support/command.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::cli {

struct Spread {
  double min = 0;
  double low = 0; ///< a tenth of the values is below it
  double median = 0;
  double high = 0; ///< a tenth of the values is above it
  double max = 0;
};

/// The middle one, or the mean of the two in the middle. Requires at least one value.
double medianOf(std::vector<double> values);
/// Requires at least one value.
Spread spreadOf(std::vector<double> values);
/// The value that a tenth of the values is below, the lowest one of fewer than ten. Requires at
/// least one value.
double bestOf(std::vector<double> values);
/// The median of a[i] / b[i], over the indices both have where neither is 0; nullopt when there are
/// none. What disturbs a machine for a while disturbs both sides of a pair alike.
std::optional<double> medianRatio(const std::vector<double>& a, const std::vector<double>& b);

/// Whether two estimates of one ratio are too far apart for either to be trusted: by a quarter.
bool disagree(const std::optional<double>& a, const std::optional<double>& b);

/// One model at one depth with one number of threads.
struct BenchRow {
  std::string model; ///< as the user named it
  int64_t depth = 0; ///< tokens in the caches before the first measured step
  unsigned threads = 1;
  std::optional<double> prefillTokensPerSecond;
  std::optional<double> prefillRatioToFirst; ///< of times
  std::optional<Spread> decodeMs;            ///< of one token, or of one token a row of the batch
  std::optional<double> ratioToFirst;        ///< of decode times, paired by round
  /// Reading the weights and valid cache rows of such a step once, and nothing else.
  std::optional<Spread> floorMs;
  std::optional<double> fractionOfFloor; ///< floor time / decode time, paired by round
  /// The same two ratios of the undisturbed times (`low` on both sides).
  std::optional<double> ratioToFirstAtBest;
  std::optional<double> fractionOfFloorAtBest;
  int64_t weightBytes = 0;    ///< that the floor reads
  int64_t cacheBytes = 0;     ///< that the floor reads, in the middle of the steps
  int64_t temporaryBytes = 0; ///< of one decode step
  std::string failure;        ///< why there are no numbers, or only some
};

struct BenchReport {
  Machine machine;
  int64_t promptTokens = 0;
  int64_t decodeTokens = 0;
  int64_t repetitions = 0;
  int64_t batch = 1;
  std::vector<BenchRow> rows;
};

/// `kvopt/bench/1`.
OrderedJson benchJson(const BenchReport& report);
/// A table for people, which is Markdown, too, with the machine above it.
SafeText benchMarkdown(const BenchReport& report);
/// One line a row (RFC 4180), the first one names the columns.
SafeText benchCsv(const BenchReport& report);

} // namespace kvopt::cli
