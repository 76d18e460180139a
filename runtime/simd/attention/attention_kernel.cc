// Table of attention kernels, in order of rank.
#include "runtime/simd/attention/attention_kernel.h"

#include <algorithm>
#include <cassert>

namespace kvopt::simd {

void AttentionKernelRegistry::add(const AttentionKernel& kernel) {
  const auto place =
      std::find_if(kernels.begin(), kernels.end(), [&](const AttentionKernel& other) {
        assert(other.rank != kernel.rank && "ranks order the kernels");
        return other.rank < kernel.rank;
      });
  kernels.insert(place, kernel);
}

const AttentionKernel& AttentionKernelRegistry::choose(const AttentionView& view) const {
  const auto found =
      std::find_if(kernels.begin(), kernels.end(),
                   [&](const AttentionKernel& kernel) { return kernel.takes(view); });
  assert(found != kernels.end() && "one kernel takes every view");
  return *found;
}

const AttentionKernelRegistry& attentionKernels() {
  static const AttentionKernelRegistry registry = [] {
    AttentionKernelRegistry all;
    registerAll(all);
    return all;
  }();
  return registry;
}

} // namespace kvopt::simd
