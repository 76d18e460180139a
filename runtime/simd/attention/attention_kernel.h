// AttentionKernel: one implementation of attention, and the table of all of them. A kernel is one
// file in runtime/simd/attention/kernels; tests compare each with the definition in
// attention_reference.h.
#pragma once

#include "runtime/simd/attention/attention.h"

#include <string_view>
#include <vector>

namespace kvopt::simd {

struct AttentionKernel {
  std::string_view name;
  /// Description of the views that it supports.
  std::string_view use;
  /// The kernel of the highest rank that supports a view computes it.
  int rank;
  bool (*takes)(const AttentionView& view);
  /// Number of units of work. Must not depend on the number of threads.
  int64_t (*units)(const AttentionView& view);
  /// Scratch memory of one running unit, and memory that all units of a job share; both are bounded
  /// for every T. Null: no shared memory.
  size_t (*scratchBytes)(const AttentionView& view);
  size_t (*sharedBytes)(const AttentionView& view) = nullptr;
  /// Computes one unit. `shared` is zero before the first unit; `scratch` is uninitialized.
  /// `upcoming`, if valid, is the unit that the thread probably runs next.
  void (*run)(const AttentionView& view, int64_t unit, int64_t upcoming,
              std::span<std::byte> scratch, std::span<std::byte> shared);
};

class AttentionKernelRegistry {
public:
  void add(const AttentionKernel& kernel);
  /// All kernels, highest rank first.
  std::span<const AttentionKernel> all() const { return kernels; }
  const AttentionKernel& choose(const AttentionView& view) const;

private:
  std::vector<AttentionKernel> kernels;
};

/// Registers every kernel of the folder (generated).
void registerAll(AttentionKernelRegistry& registry);

/// Every kernel of the folder.
const AttentionKernelRegistry& attentionKernels();

} // namespace kvopt::simd
