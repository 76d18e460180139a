// Runs a test body once for every SIMD target that this CPU has and that is compiled in.
#pragma once

#include "runtime/kernels/simd/code_products.h"

#include <gtest/gtest.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace kvopt {

/// All targets or, where the environment variable KVOPT_SIMD_TARGETS holds some of Highway's names
/// with spaces between them, just these: one that the CPU does not have is a failure then.
inline std::vector<int64_t> simdTargetsToTest() {
  hwy::SetSupportedTargetsForTest(0);
  const auto available = hwy::SupportedAndGeneratedTargets();
  const char* chosen = std::getenv("KVOPT_SIMD_TARGETS");
  if (!chosen || !*chosen)
    return {available.begin(), available.end()};
  std::vector<int64_t> targets;
  std::istringstream names(chosen);
  for (std::string name; names >> name;) {
    const auto found = std::find_if(available.begin(), available.end(), [&](int64_t target) {
      return name == hwy::TargetName(target);
    });
    if (found == available.end())
      ADD_FAILURE() << "this CPU has no SIMD target " << name;
    else
      targets.push_back(*found);
  }
  return targets;
}

template <class Body> void forEachSimdTarget(Body body) {
  const std::vector<int64_t> targets = simdTargetsToTest();
  EXPECT_FALSE(targets.empty());
  for (const int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

/// The same for work with rows of codes, as if the CPU did not multiply bytes; where it does, once
/// more with the target that makes use of it.
template <class Body> void forEachSimdTargetOfCodes(Body body) {
  forEachSimdTarget([&] {
    const bool multiplies = hwy::SupportedTargets() == HWY_AVX3 && hasByteProducts();
    hideByteProducts(true);
    body();
    hideByteProducts(false);
    if (!multiplies)
      return;
    SCOPED_TRACE("with products of bytes");
    body();
  });
}

} // namespace kvopt
