// Decides by the CPU's vendor whether unit-stride loops prefetch every line (decision 18).
#include "runtime/simd/prefetch.h"

namespace kvopt::simd {
namespace {

bool isOfIntel() {
#if HWY_ARCH_X86
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

} // namespace

const bool asksForEachLine = isOfIntel();

} // namespace kvopt::simd
