// Every small slice of one axis, and what ONNX says that it takes.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace kvopt {

/// A slice of an axis with a fixed extent.
struct SmallSlice {
  int64_t start = 0, end = 0, step = 1, extent = 0;

  /// The indices that it takes. A negative bound counts from the end. Both are then clamped: to [0,
  /// extent], or with a negative step to [0, extent - 1] and [-1, extent - 1].
  std::vector<int64_t> indices() const {
    std::vector<int64_t> taken;
    if (extent == 0)
      return taken;
    const int64_t most = step > 0 ? extent : extent - 1;
    const int64_t first = std::clamp<int64_t>(start < 0 ? start + extent : start, 0, most);
    const int64_t last = std::clamp<int64_t>(end < 0 ? end + extent : end, step > 0 ? 0 : -1, most);
    for (int64_t at = first; step > 0 ? at < last : at > last; at += step)
      taken.push_back(at);
    return taken;
  }
  std::string text() const {
    return "[" + std::to_string(start) + ":" + std::to_string(end) + ":" + std::to_string(step) +
           "] of " + std::to_string(extent);
  }
};

inline void forEachSmallSlice(llvm::function_ref<void(const SmallSlice&)> visit) {
  constexpr int64_t farthest = 7, largestStep = 3, largestExtent = 4;
  for (int64_t extent = 0; extent <= largestExtent; ++extent)
    for (int64_t step = -largestStep; step <= largestStep; ++step)
      for (int64_t start = -farthest; step != 0 && start <= farthest; ++start)
        for (int64_t end = -farthest; end <= farthest; ++end)
          visit({start, end, step, extent});
}

} // namespace kvopt
