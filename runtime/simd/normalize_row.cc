// Two passes for the statistics, one for the result.
#include "runtime/simd/normalize_row.h"

#include <cmath>

namespace kvopt::simd {
namespace {

template <class T>
RowStatistics statisticsOf(const T* row, int64_t length, double epsilon, bool centred) {
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

template <class T>
RowStatistics normalize(const T* x, T* y, int64_t length, double epsilon, bool centred,
                        const T* scale, const T* bias) {
  const RowStatistics statistics = statisticsOf(x, length, epsilon, centred);
  for (int64_t i = 0; i < length; ++i) {
    const double value = (static_cast<double>(x[i]) - statistics.mean) *
                         statistics.inverseDeviation * static_cast<double>(scale[i]);
    y[i] = static_cast<T>(bias ? value + static_cast<double>(bias[i]) : value);
  }
  return statistics;
}

} // namespace

RowStatistics normalizeRow(const float* x, float* y, int64_t length, double epsilon, bool centred,
                           const float* scale, const float* bias) {
  return normalize(x, y, length, epsilon, centred, scale, bias);
}

RowStatistics normalizeRow(const double* x, double* y, int64_t length, double epsilon, bool centred,
                           const double* scale, const double* bias) {
  return normalize(x, y, length, epsilon, centred, scale, bias);
}

} // namespace kvopt::simd
