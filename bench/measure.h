// Times measured in turns and their statistics, shared by all benchmarks.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace kvopt {

/// Seconds from a steady clock.
double seconds();

/// The given percentile of the values, as a fraction. `values` must not be empty.
double percentile(std::vector<double> values, double fraction);

/// Minimum number of seconds per floating-point operation of one thread.
double secondsPerOperation();

/// Times of a reference and of a computation that is compared with it, measured in turns, in
/// several rounds.
class PairedTimes {
public:
  void startRound();
  void add(double reference, double time);

  /// Minimum over the rounds of the tenth percentile of times, and of reference times.
  double time() const { return bestTime(times); }
  double reference() const { return bestTime(references); }
  /// Tenth percentile of times divided by that of references, in the round with the minimum.
  double ratioP10() const;
  /// Median of the ratios of pairs, in the round with the minimum.
  double ratioMedian() const;

private:
  using Rounds = std::vector<std::vector<double>>;
  static double bestTime(const Rounds& rounds);
  Rounds references, times;
};

} // namespace kvopt
