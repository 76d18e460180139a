// The choice is Highway's, which all kernels ask; products of bytes ask the CPU themselves.
#include "bench/simd_target.h"

#include "runtime/kernels/simd/code_products.h"

#include <hwy/highway.h>

namespace kvopt {

std::vector<std::string> simdTargets() {
  std::vector<std::string> names;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets())
    names.emplace_back(hwy::TargetName(target));
  return names;
}

void useSimdTarget(const std::string& name) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target))
      continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    hideByteProducts(target != HWY_AVX3);
    return;
  }
}

} // namespace kvopt
