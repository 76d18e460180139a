// Attention as plain loops in double over [B,H,S,D] lists, and lists from tensors.
#pragma once

#include "tests/runtime/kernels/kernel_harness.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace kvopt {

inline constexpr double minusInfinity = -std::numeric_limits<double>::infinity();

/// [B,S,H*D] as [B,H,S,D].
inline std::vector<double> splitHeadsOf(const TestTensor& x, int64_t heads) {
  const int64_t rows = x.shape()[1];
  const int64_t width = x.shape()[2] / heads;
  std::vector<double> split;
  for (int64_t b = 0; b < x.shape()[0]; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t s = 0; s < rows; ++s)
        for (int64_t d = 0; d < width; ++d)
          split.push_back(x.get((b * rows + s) * heads * width + h * width + d));
  return split;
}

/// [B,H,S,D] as [B,S,H*D].
inline std::vector<double> mergedHeads(const std::vector<double>& x, int64_t batches, int64_t heads,
                                       int64_t rows, int64_t width) {
  std::vector<double> merged;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t s = 0; s < rows; ++s)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < width; ++d)
          merged.push_back(x[static_cast<size_t>(((b * heads + h) * rows + s) * width + d)]);
  return merged;
}

/// [B,H,P,D] followed by [B,H,S,D] along the rows.
inline std::vector<double> joinedRows(const std::vector<double>& past, int64_t pastRows,
                                      const std::vector<double>& fresh, int64_t rows,
                                      int64_t planes, int64_t width) {
  std::vector<double> joined;
  for (int64_t plane = 0; plane < planes; ++plane) {
    auto from = past.begin() + plane * pastRows * width;
    joined.insert(joined.end(), from, from + pastRows * width);
    from = fresh.begin() + plane * rows * width;
    joined.insert(joined.end(), from, from + rows * width);
  }
  return joined;
}

/// softmax(softcap(scale * Q K^T) + bias) V with Q [B,H,S,D], K [B,G,T,D] and V [B,G,T,Dv].
struct PlainAttention {
  int64_t batches = 1, heads = 1, groups = 1, rows = 1, keys = 1, width = 1, valueWidth = 1;
  std::vector<double> query, key, value;
  double scale = 1, softcap = 0;
  /// Added to the score of (b, h, i, j); -inf hides the key. Not called: nothing is added.
  std::function<double(int64_t, int64_t, int64_t, int64_t)> bias;
  std::vector<double> sinks; ///< one logit per head, or none

  double scaled(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t group = h / (heads / groups);
    double sum = 0;
    for (int64_t d = 0; d < width; ++d)
      sum += query[size_t(((b * heads + h) * rows + i) * width + d)] *
             key[size_t(((b * groups + group) * keys + j) * width + d)];
    return scale * sum;
  }
  double capped(double score) const {
    return softcap == 0 ? score : softcap * std::tanh(score / softcap);
  }
  double biasOf(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return bias ? bias(b, h, i, j) : 0;
  }

  /// [T]; all 0 when the row sees nothing.
  std::vector<double> weights(int64_t b, int64_t h, int64_t i) const {
    const double sink = sinks.empty() ? minusInfinity : sinks[size_t(h)];
    std::vector<double> result;
    double maximum = sink;
    for (int64_t j = 0; j < keys; ++j) {
      const double added = biasOf(b, h, i, j);
      result.push_back(added == minusInfinity ? added : capped(scaled(b, h, i, j)) + added);
      maximum = std::max(maximum, result.back());
    }
    double sum = maximum == minusInfinity ? 1 : std::exp(sink - maximum);
    for (double& score : result) {
      score = maximum == minusInfinity ? 0 : std::exp(score - maximum);
      sum += score;
    }
    for (double& score : result)
      score /= sum;
    return result;
  }

  /// [B,H,S,Dv]. Values of weight 0 are not read.
  std::vector<double> output() const {
    std::vector<double> result;
    for (int64_t b = 0; b < batches; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < rows; ++i) {
          const std::vector<double> weight = weights(b, h, i);
          const int64_t group = h / (heads / groups);
          for (int64_t d = 0; d < valueWidth; ++d) {
            double sum = 0;
            for (int64_t j = 0; j < keys; ++j)
              if (weight[size_t(j)] != 0)
                sum += weight[size_t(j)] *
                       value[size_t(((b * groups + group) * keys + j) * valueWidth + d)];
            result.push_back(sum);
          }
        }
    return result;
  }
  std::vector<double> merged() const {
    return mergedHeads(output(), batches, heads, rows, valueWidth);
  }
};

/// How far results of one element type may lie from those of double loops, operands below 1.
inline double attentionTolerance(ir::ElementType element) {
  return element == ir::ElementType::Float     ? 1e-5
         : element == ir::ElementType::Float16 ? 2e-3
                                               : 2e-2;
}

} // namespace kvopt
