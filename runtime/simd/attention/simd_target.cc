// Selection through Highway, which all kernels use.
#include "runtime/simd/attention/simd_target.h"

#include "runtime/simd/attention/code_products.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cassert>

namespace kvopt::simd {
namespace {

std::vector<int64_t> available() {
  hwy::SetSupportedTargetsForTest(0);
  return hwy::SupportedAndGeneratedTargets();
}

} // namespace

std::vector<std::string> simdTargets() {
  std::vector<std::string> names;
  for (const int64_t target : available())
    names.emplace_back(hwy::TargetName(target));
  return names;
}

void useSimdTarget(std::string_view name) {
  const std::vector<int64_t> targets = available();
  const auto chosen = std::find_if(targets.begin(), targets.end(),
                                   [&](int64_t target) { return name == hwy::TargetName(target); });
  assert(chosen != targets.end());
  hwy::SetSupportedTargetsForTest(*chosen);
  hwy::GetChosenTarget().Update(*chosen);
}

void useBestSimdTarget() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

bool usesByteProducts() { return hasByteProducts() && (hwy::SupportedTargets() & HWY_AVX3) != 0; }

} // namespace kvopt::simd
