// Runs a test body once for every SIMD target that this CPU has and that is compiled in.
#pragma once

#include <gtest/gtest.h>

#include <hwy/highway.h>

namespace kvopt {

template <class Body> void forEachSimdTarget(Body body) {
  hwy::SetSupportedTargetsForTest(0);
  const auto targets = hwy::SupportedAndGeneratedTargets();
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

} // namespace kvopt
