// Two passes for the statistics, one for the result.
#include "runtime/normalize_row.h"

#include <cmath>

namespace kvopt {
namespace {

RowStatistics statisticsOf(const float* row, int64_t length, double epsilon, bool centred) {
  RowStatistics result;
  if (centred) {
    for (int64_t i = 0; i < length; ++i)
      result.mean += static_cast<double>(row[i]);
    result.mean /= static_cast<double>(length);
  }
  double squares = 0.0;
  for (int64_t i = 0; i < length; ++i) {
    const double difference = static_cast<double>(row[i]) - result.mean;
    squares += difference * difference;
  }
  result.inverseDeviation = 1.0 / std::sqrt(squares / static_cast<double>(length) + epsilon);
  return result;
}

} // namespace

RowStatistics normalizeRow(const float* x, float* y, int64_t length, double epsilon, bool centred,
                           const float* scale, const float* bias) {
  const RowStatistics statistics = statisticsOf(x, length, epsilon, centred);
  for (int64_t i = 0; i < length; ++i) {
    const double value = (static_cast<double>(x[i]) - statistics.mean) *
                         statistics.inverseDeviation * static_cast<double>(scale[i]);
    y[i] = static_cast<float>(bias ? value + static_cast<double>(bias[i]) : value);
  }
  return statistics;
}

} // namespace kvopt
