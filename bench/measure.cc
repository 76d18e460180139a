// The arithmetic of paired times.
#include "bench/measure.h"

#include "bench/machine.h"

#include <algorithm>
#include <chrono>

namespace kvopt {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

double secondsPerOperation() {
  double best = 1;
  float sink = 1e-3f;
  for (int i = 0; i < 20; ++i) {
    const double start = seconds();
    const double operations = multiplyAdds(400, sink);
    best = std::min(best, (seconds() - start) / operations);
  }
  return sink == 12345.0f ? 0 : best;
}

void PairedTimes::startRound() {
  references.emplace_back();
  times.emplace_back();
}

void PairedTimes::add(double reference, double time) {
  references.back().push_back(reference);
  times.back().push_back(time);
}

double PairedTimes::bestTime(const Rounds& rounds) {
  double best = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& round : rounds)
    best = std::min(best, percentile(round, 0.1));
  return best;
}

double PairedTimes::ratioP10() const {
  double best = std::numeric_limits<double>::infinity();
  for (size_t round = 0; round < times.size(); ++round)
    best = std::min(best, percentile(times[round], 0.1) / percentile(references[round], 0.1));
  return best;
}

double PairedTimes::ratioMedian() const {
  double best = std::numeric_limits<double>::infinity();
  for (size_t round = 0; round < times.size(); ++round) {
    std::vector<double> ratios;
    for (size_t i = 0; i < times[round].size(); ++i)
      ratios.push_back(times[round][i] / references[round][i]);
    best = std::min(best, percentile(ratios, 0.5));
  }
  return best;
}

} // namespace kvopt
