// Times taken in turns and what is said of them: the arithmetic of every benchmark here.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace kvopt {

/// Seconds of a steady clock.
double seconds();

/// The value below which `fraction` of the values lie. `values` must not be empty.
double percentile(std::vector<double> values, double fraction);

/// Seconds per floating-point operation of one thread, at best.
double secondsPerOperation();

/// A reference and what is compared with it, timed in turns, in several rounds.
class PairedTimes {
public:
  void startRound();
  void add(double reference, double time);

  /// The least over the rounds of the tenth percentile of times, and of reference times.
  double time() const { return bestTime(times); }
  double reference() const { return bestTime(references); }
  /// Tenth percentile of times over that of references, in the round where that is least.
  double ratioP10() const;
  /// The median of the ratios of pairs, in the round where that is least.
  double ratioMedian() const;

private:
  using Rounds = std::vector<std::vector<double>>;
  static double bestTime(const Rounds& rounds);
  Rounds references, times;
};

} // namespace kvopt
