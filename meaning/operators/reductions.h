// Reductions along axes, which several families of operators use.
#pragma once

#include "meaning/call.h"

namespace kvopt::meaning {

/// The reduction of `before` of all elements along axes (ordered), then `after` of it and of the
/// number of elements. With `keeps`, the axes stay with an extent of 1.
Tensor reduced(const Tensor& data, llvm::ArrayRef<unsigned> axes, bool keeps, Reduction reduction,
               std::function<Scalar(Scalar)> before = nullptr,
               std::function<Scalar(Scalar all, Scalar count)> after = nullptr,
               std::optional<ir::ElementType> type = std::nullopt);

/// e^(x - m) / sum(e^(x - m)) with the largest m along the axis, or its logarithm.
Tensor softmaxOf(Call& call, const Tensor& data, unsigned axis, bool isLogarithm = false);

/// Mean, difference to it, and the mean of its square, along axes that stay with an extent of 1.
struct Moments {
  Tensor mean, difference, variance;
};
Moments momentsOf(Call& call, const Tensor& data, llvm::ArrayRef<unsigned> axes);

} // namespace kvopt::meaning
