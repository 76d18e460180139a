// Normalization of one row, statistics in double.
#pragma once

#include <cstdint>

namespace kvopt::simd {

struct RowStatistics {
  double mean = 0.0;
  double inverseDeviation = 0.0;
};

/// y = (x - mean) / sqrt(mean((x - mean)²) + epsilon) * scale + bias over `length` >= 1 elements.
/// Unless `centred`, the mean is replaced by 0. `bias` may be null; `y` may be `x`.
RowStatistics normalizeRow(const float* x, float* y, int64_t length, double epsilon, bool centred,
                           const float* scale, const float* bias);
RowStatistics normalizeRow(const double* x, double* y, int64_t length, double epsilon, bool centred,
                           const double* scale, const double* bias);

} // namespace kvopt::simd
