// Fits of strides.
#include "passes/analysis/evaluation/movement_fit.h"

#include <algorithm>

namespace kvopt::analysis {

namespace {

/// Cuts the sequence 0, steps[1], steps[2], … into factors.
std::optional<llvm::SmallVector<AxisFactor, 2>> factorsOf(std::vector<int64_t> steps) {
  llvm::SmallVector<AxisFactor, 2> factors;
  while (steps.size() > 1) {
    const int64_t stride = steps[1];
    const size_t count = steps.size();
    size_t run = 1;
    while (run < count && steps[run] == stride * static_cast<int64_t>(run))
      ++run;
    // A run may exceed the factor by chance; the longest that divides the axis and fits is used.
    std::vector<int64_t> outer;
    for (; run > 1; --run) {
      if (count % run != 0)
        continue;
      outer.clear();
      bool fits = true;
      for (size_t i = 0; i < count && fits; ++i) {
        if (i % run == 0)
          outer.push_back(steps[i]);
        fits = steps[i] == outer.back() + stride * static_cast<int64_t>(i % run);
      }
      if (fits)
        break;
    }
    if (run <= 1)
      return std::nullopt;
    factors.insert(factors.begin(), AxisFactor{static_cast<int64_t>(run), stride});
    steps = std::move(outer);
  }
  return factors;
}

} // namespace

std::optional<MovementFit> fitMovement(llvm::ArrayRef<int64_t> extents,
                                       llvm::ArrayRef<int64_t> sources) {
  MovementFit fit;
  fit.offset = sources.front();
  const Extents strides = rowMajorStrides(extents);
  std::vector<std::vector<int64_t>> added(extents.size());
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    for (int64_t i = 0; i < extents[axis]; ++i)
      added[axis].push_back(sources[static_cast<size_t>(i * strides[axis])] - fit.offset);
    auto factors = factorsOf(added[axis]);
    if (!factors)
      return std::nullopt;
    fit.axes.push_back(std::move(*factors));
  }
  for (size_t element = 0; element < sources.size(); ++element) {
    const Extents index = indexOf(static_cast<int64_t>(element), extents);
    int64_t sum = fit.offset;
    for (size_t axis = 0; axis < extents.size(); ++axis)
      sum += added[axis][static_cast<size_t>(index[axis])];
    if (sum != sources[element])
      return std::nullopt;
  }
  return fit;
}

bool cutAlike(llvm::SmallVector<AxisFactor, 2>& one, llvm::SmallVector<AxisFactor, 2>& other) {
  llvm::SmallVector<AxisFactor, 2> first, second;
  size_t i = one.size(), j = other.size();
  AxisFactor a, b;
  while (true) {
    if (a.extent == 1 && i > 0)
      a = one[--i];
    if (b.extent == 1 && j > 0)
      b = other[--j];
    if (a.extent == 1 || b.extent == 1)
      break;
    const int64_t inner = std::min(a.extent, b.extent);
    if (a.extent % inner != 0 || b.extent % inner != 0)
      return false;
    first.insert(first.begin(), AxisFactor{inner, a.stride});
    second.insert(second.begin(), AxisFactor{inner, b.stride});
    a = {a.extent / inner, a.stride * inner};
    b = {b.extent / inner, b.stride * inner};
  }
  if (a.extent != b.extent)
    return false;
  one = std::move(first);
  other = std::move(second);
  return true;
}

} // namespace kvopt::analysis
