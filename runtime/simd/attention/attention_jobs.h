// AttentionJobs: several attentions with disjoint outputs, whose units are distributed together.
#pragma once

#include "runtime/simd/attention/attention.h"

#include <atomic>

namespace kvopt::simd {

class AttentionJobs {
public:
  /// Size in bytes of the memory that the jobs of `views` views need.
  static size_t bytes(size_t views);

  /// Refers to `memory`, which has bytes(views.size()) bytes with the alignment of
  /// std::max_align_t.
  AttentionJobs(std::span<const AttentionView> views, std::span<std::byte> memory);

  /// Number of jobs, one per view.
  size_t size() const { return jobs.size(); }
  /// Maximum number of workers of `threads` threads.
  int64_t mostWorkers(int64_t threads) const;
  /// Number of workers of `threads` threads: one if the work takes less time than waking a thread.
  int64_t workers(int64_t threads) const;

  /// Scratch memory of one job for `workers` workers, in bytes; nullopt on overflow.
  std::optional<size_t> scratchBytes(size_t job, int64_t workers) const {
    return jobs[job].scratchBytes(workers);
  }
  /// Must be called once for each job before the first worker starts.
  void start(size_t job, std::span<std::byte> scratch) { jobs[job].start(scratch); }

  /// Runs units until none is left. Called once by each of `workers` workers, simultaneously or one
  /// after another; `worker` is its index.
  void work(int64_t worker, int64_t workers);

private:
  std::span<AttentionJob> jobs;
  std::span<int64_t> firstUnits; ///< first unit of each job, then the number of all units
  double products = 0;           ///< number of products in all units
  std::atomic<int64_t> next{0};
};

} // namespace kvopt::simd
