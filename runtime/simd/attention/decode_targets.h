// Instruction sets that decode attention is not compiled for: all files of the kernel include this
// before Highway, so that each is called in the same ones.
#pragma once

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                                       \
  (KVOPT_DISABLED_TARGETS | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
