// Convolutions in f32 with oneDNN.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <cstdint>

namespace kvopt::kernels {

/// One spatial axis. The convolution reads positions -padBegin … input + padEnd - 1; those outside
/// of the input are 0.
struct ConvolutionAxis {
  int64_t input = 0, kernel = 0, output = 0;
  int64_t stride = 1, dilation = 1, padBegin = 0, padEnd = 0;
};

/// y[m,o…] = bias[m] + sum over c, k… of w[m,c,k…] x[g * channels + c, o * stride + k * dilation -
/// padBegin…] for m < groups * features, with g = m / features.
struct ConvolutionShape {
  int64_t groups = 1;
  int64_t channels = 0; ///< channels of the input per group
  int64_t features = 0; ///< channels of the result per group
  std::vector<ConvolutionAxis> axes;
};

/// One prepared convolution with contiguous operands. Calls run only on the calling thread and may
/// be made from several threads simultaneously; sums do not depend on the thread.
class Convolution {
public:
  /// Null if the library has no implementation, for example for more than three axes.
  static std::unique_ptr<const Convolution> create(const ConvolutionShape& shape, bool hasBias);
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;
  ~Convolution();

  /// Size in bytes of the weights in the library's format, and of the working memory of one `run`.
  /// Both must be aligned to 64 bytes.
  size_t weightBytes() const;
  size_t scratchBytes() const;

  /// Converts weights [groups * features,channels,kernel…] to the library's format. False if the
  /// library reports an error.
  bool packWeights(const float* weights, std::byte* packed) const;
  /// Computes y [groups * features,output…] from x [groups * channels,input…]; there is no bias
  /// unless `hasBias`.
  bool run(const float* x, const std::byte* packedWeights, const float* bias, float* y,
           std::byte* scratch) const;

private:
  struct Prepared;
  explicit Convolution(std::unique_ptr<Prepared> library);
  std::unique_ptr<Prepared> prepared;
};

} // namespace kvopt::kernels
