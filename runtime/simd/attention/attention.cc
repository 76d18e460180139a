// Division of one attention into units of work and their scratch memory.
#include "runtime/simd/attention/attention.h"

#include "runtime/simd/attention/attention_kernel.h"

#include <algorithm>
#include <cassert>

namespace kvopt::simd {
namespace {

/// Alignment of the parts of the scratch memory relative to its start.
constexpr size_t kScratchAlignment = 64;

size_t roundUp(size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

} // namespace

AttentionJob::AttentionJob(const AttentionView& view)
    : AttentionJob(view, attentionKernels().choose(view)) {}

AttentionJob::AttentionJob(const AttentionView& view, const AttentionKernel& kernel)
    : view_(view), kernel_(&kernel), units_(kernel.units(view)),
      unitBytes_(roundUp(kernel.scratchBytes(view))),
      sharedBytes_(kernel.sharedBytes ? roundUp(kernel.sharedBytes(view)) : 0) {
  assert(kernel.takes(view));
}

std::optional<size_t> AttentionJob::scratchBytes(int64_t workers) const {
  size_t bytes = 0;
  if (__builtin_mul_overflow(unitBytes_, static_cast<size_t>(workers), &bytes) ||
      __builtin_add_overflow(bytes, sharedBytes_, &bytes))
    return std::nullopt;
  return bytes;
}

void AttentionJob::start(std::span<std::byte> scratch) {
  assert(scratch.size() >= sharedBytes_);
  scratch_ = scratch;
  std::fill_n(scratch.begin(), sharedBytes_, std::byte{0});
}

void AttentionJob::run(int64_t unit, int64_t worker, int64_t upcoming) {
  assert(unit >= 0 && unit < units_ && upcoming >= 0);
  const size_t begin = sharedBytes_ + static_cast<size_t>(worker) * unitBytes_;
  assert(begin + unitBytes_ <= scratch_.size());
  kernel_->run(view_, unit, upcoming, scratch_.subspan(begin, unitBytes_),
               scratch_.first(sharedBytes_));
}

} // namespace kvopt::simd
