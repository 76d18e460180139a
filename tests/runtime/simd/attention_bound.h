// How wrong a row of attention in float32 may be at most, by running error analysis.
#pragma once

#include "runtime/simd/attention/attention.h"
#include "tests/runtime/simd/rounding_bound.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kvopt {

/// A key that a row sees, exactly; a sink is one without values.
struct BoundedKey {
  double score = 0; ///< with the mask's term
  double error = 0; ///< a bound for what is wrong with the computed score
  std::vector<double> values;

  double value(size_t d) const { return values.empty() ? 0 : values[d]; }
};

/// An upper bound for |O - exact| of the elements of one row after `length` keys, with e_j the
/// error of score j and p_j = exp(s_j) / sum exp(s) the exact weights:
///   a weight is wrong, relatively, by at most
///     w_j = exp(e_j + u (max - s_j + 2 max_j e) + (4 R + 6) u) - 1
///     since it is a product of up to R + 1 exponentials, of 2 ulp each, one for every larger
///     maximum; their arguments, which are rounded, add up to max - s_j. What is wrong with the
///     maximum is wrong with all weights alike, and cancels;
///   the quotient of the sums, which have T + R roundings, is wrong by
///     (sum p_j w_j |v_j - O| + g sum p_j (1 + w_j) (|v_j| + |O|)) / (1 - sum p_j (w_j + g + g
///     w_j)) with g = gamma(T + R), since sum p_j (v_j - O) = 0.
/// Added are the rounding of the quotient and to the storage of O, and the underflow of weights.
/// Keys whose weight is below e^-200 count for nothing on either side.
inline double attentionBound(const std::vector<BoundedKey>& keys, int64_t length,
                             simd::FloatStorage storage) {
  constexpr double unit = floatUnit;
  double top = -std::numeric_limits<double>::infinity(), largestError = 0, largest = 0;
  size_t width = 0;
  for (const BoundedKey& key : keys)
    top = std::max(top, key.score);
  double mass = 0;
  for (const BoundedKey& key : keys) {
    for (const double value : key.values)
      largest = std::max(largest, std::abs(value));
    width = std::max(width, key.values.size());
    if (key.score - top <= -200)
      continue;
    largestError = std::max(largestError, key.error);
    mass += std::exp(key.score - top);
  }
  const double tokens = static_cast<double>(length);
  const double factors = tokens / 32 + 18; // tiles, segments, lanes
  const double sum = roundings(tokens + factors);

  std::vector<double> output(width), wrong(width);
  double lost = 0;
  const auto forEachKey = [&](const auto& visit) {
    for (const BoundedKey& key : keys) {
      const double below = top - key.score;
      if (below < 200)
        visit(key, std::exp(-below) / mass,
              std::expm1(key.error + unit * (below + 2 * largestError) + (4 * factors + 6) * unit));
    }
  };
  forEachKey([&](const BoundedKey& key, double weight, double) {
    for (size_t d = 0; d < width; ++d)
      output[d] += weight * key.value(d);
  });
  forEachKey([&](const BoundedKey& key, double weight, double error) {
    lost += weight * (error + sum + sum * error);
    for (size_t d = 0; d < width; ++d)
      wrong[d] += weight * (error * std::abs(key.value(d) - output[d]) +
                            sum * (1 + error) * (std::abs(key.value(d)) + std::abs(output[d])));
  });
  double bound = 0;
  for (size_t d = 0; d < width; ++d) {
    // Computed weights are no negative numbers, whatever is wrong with them.
    double error = lost < 0.5 ? wrong[d] / (1 - lost) : 3 * largest;
    error += 4 * unit * (std::abs(output[d]) + error);
    if (storage == simd::FloatStorage::f16)
      error += (std::abs(output[d]) + error) * 0x1p-11 + 0x1p-25;
    if (storage == simd::FloatStorage::bf16)
      error += (std::abs(output[d]) + error) * 0x1p-8;
    bound = std::max(bound, error);
  }
  return bound + (tokens + 1) * 0x1p-126 * largest;
}

} // namespace kvopt
