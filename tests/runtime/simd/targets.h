// Runs a test body once for every SIMD target that this CPU has and that is compiled in.
#pragma once

#include "runtime/simd/attention/simd_target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace kvopt {

/// All targets or, where the environment variable KVOPT_SIMD_TARGETS holds some of Highway's names
/// with spaces between them, just these: one that the CPU does not have is a failure then.
inline std::vector<std::string> simdTargetsToTest() {
  const std::vector<std::string> available = simd::simdTargets();
  const char* chosen = std::getenv("KVOPT_SIMD_TARGETS");
  if (!chosen || !*chosen)
    return available;
  std::vector<std::string> targets;
  std::istringstream names(chosen);
  for (std::string name; names >> name;) {
    if (std::find(available.begin(), available.end(), name) == available.end())
      ADD_FAILURE() << "this CPU has no SIMD target " << name;
    else
      targets.push_back(name);
  }
  return targets;
}

template <class Body> void forEachSimdTarget(Body body) {
  const std::vector<std::string> targets = simdTargetsToTest();
  EXPECT_FALSE(targets.empty());
  for (const std::string& target : targets) {
    SCOPED_TRACE(target);
    simd::useSimdTarget(target);
    body();
  }
  simd::useBestSimdTarget();
}

} // namespace kvopt
