// StepResult: results of a session's step, and statistics of all steps so far.
#pragma once

#include "runtime/exec/executor.h"
#include "runtime/memory/buffer.h"

#include <string>
#include <vector>

namespace kvopt::runtime {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct StepResult {
  /// Every graph output that is not a cache, in order.
  std::vector<NamedTensor> outputs;
  /// The output of that name; null if there is none.
  const Tensor* find(llvm::StringRef name) const {
    for (const NamedTensor& output : outputs)
      if (output.name == name)
        return &output.tensor;
    return nullptr;
  }
};

/// Accumulated over the steps of a session.
struct SessionStatistics {
  int64_t steps = 0;
  int64_t cacheReallocations = 0;
  int64_t inPlaceBytesCopied = 0;
  int64_t cacheBytesWritten = 0;
  int64_t cacheBytesMoved = 0; ///< by growth that copies
  /// Bytes of earlier rows that were returned in other memory than they were passed in, without
  /// states.
  int64_t pastBytesCopied = 0;
  /// Part of cacheBytesWritten: bytes copied into caches in blocks. Chunks that fill whole blocks
  /// are not copied.
  int64_t blockBytesCopied = 0;
  /// Maximum of RunStatistics::temporaryPeak over the steps.
  int64_t temporaryPeak = 0;
  RunStatistics lastRun;
};

} // namespace kvopt::runtime
