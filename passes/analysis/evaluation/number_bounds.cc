// Arithmetic of bounds.
#include "passes/analysis/evaluation/number_bounds.h"

#include "passes/analysis/evaluation/affine_order.h"

#include <algorithm>
#include <cmath>

namespace kvopt::analysis {
using namespace ir;

void setLimits(NumberBounds& bounds) {
  auto isWholeLength = [](double number) {
    return std::abs(number) < NumberBounds::largest && number == std::floor(number);
  };
  if (isWholeLength(bounds.low))
    bounds.least = Dim::fixed(static_cast<int64_t>(bounds.low));
  if (isWholeLength(bounds.high))
    bounds.most = Dim::fixed(static_cast<int64_t>(bounds.high));
}

NumberBounds between(double low, double high, bool isIntegral) {
  NumberBounds bounds;
  bounds.low = std::clamp(low, -NumberBounds::largest, NumberBounds::largest);
  bounds.high = std::clamp(high, -NumberBounds::largest, NumberBounds::largest);
  bounds.isIntegral = isIntegral;
  setLimits(bounds);
  return bounds;
}

void limitBy(NumberBounds& bounds, const Dim& least, const Dim& most) {
  if (bounds.least.isUnknown())
    bounds.least = least;
  if (bounds.most.isUnknown())
    bounds.most = most;
}

NumberBounds unionOf(llvm::ArrayRef<NumberBounds> operands) {
  NumberBounds all = operands.front();
  for (const NumberBounds& next : operands.drop_front()) {
    all.low = std::min(all.low, next.low);
    all.high = std::max(all.high, next.high);
    all.isIntegral &= next.isIntegral;
    all.least = leastOf(all.least, next.least);
    all.most = greatestOf(all.most, next.most);
  }
  all.isFixed = false;
  return all;
}

NumberBounds sumOf(const NumberBounds& one, const NumberBounds& other) {
  NumberBounds bounds =
      between(one.low + other.low, one.high + other.high, one.isIntegral && other.isIntegral);
  limitBy(bounds, one.least + other.least, one.most + other.most);
  return bounds;
}

NumberBounds negativeOf(const NumberBounds& one) {
  NumberBounds bounds = between(-one.high, -one.low, one.isIntegral);
  limitBy(bounds, -one.most, -one.least);
  return bounds;
}

} // namespace kvopt::analysis
