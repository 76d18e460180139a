// AttentionKernel: one way to compute attention, and the table of all of them. A kernel is one file
// in runtime/simd/attention/kernels; attention_reference.h is the definition that each is tested
// against.
#pragma once

#include "runtime/simd/attention/attention.h"

#include <string_view>
#include <vector>

namespace kvopt::simd {

struct AttentionKernel {
  std::string_view name;
  /// Which views it takes, for people.
  std::string_view use;
  /// Of the kernels that take a view, the one of the highest rank computes it.
  int rank;
  bool (*takes)(const AttentionView& view);
  /// The number of units of work. Must not depend on the number of threads.
  int64_t (*units)(const AttentionView& view);
  /// Scratch memory of one running unit, and memory that all units of a job share; both are bounded
  /// for every T. Null: nothing is shared.
  size_t (*scratchBytes)(const AttentionView& view);
  size_t (*sharedBytes)(const AttentionView& view) = nullptr;
  /// Computes one unit. `shared` was zero before the first unit; `scratch` holds anything.
  /// `upcoming`, if it is one, is the unit that probably comes after it on the same thread.
  void (*run)(const AttentionView& view, int64_t unit, int64_t upcoming,
              std::span<std::byte> scratch, std::span<std::byte> shared);
};

class AttentionKernelRegistry {
public:
  void add(const AttentionKernel& kernel);
  /// By rank, highest first.
  std::span<const AttentionKernel> all() const { return kernels; }
  const AttentionKernel& choose(const AttentionView& view) const;

private:
  std::vector<AttentionKernel> kernels;
};

/// Generated from the folder.
void registerAll(AttentionKernelRegistry& registry);

/// Every kernel of the folder.
const AttentionKernelRegistry& attentionKernels();

} // namespace kvopt::simd
