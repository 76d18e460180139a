// The shapes of attention that benchmarks and peers are measured at.
#pragma once

#include <cstdint>

namespace kvopt {

/// One query row a step, batch 1.
struct AttentionShape {
  const char* name = "";
  int64_t queryHeads = 0;
  int64_t kvHeads = 0;
  int64_t keyWidth = 0;
  int64_t valueWidth = 0;
};

} // namespace kvopt
