// Units of several attentions in one order, taken by workers one after another.
#include "runtime/simd/attention/attention_jobs.h"

#include <algorithm>
#include <new>
#include <type_traits>

namespace kvopt::simd {

namespace {

double productsOf(const AttentionView& view) {
  const double pairs = static_cast<double>(view.batches) * static_cast<double>(view.queryHeads) *
                       static_cast<double>(view.queryRows) * static_cast<double>(view.totalLength);
  return pairs * static_cast<double>(view.keyWidth + view.valueWidth);
}

/// Size in bytes of the jobs, rounded up to whole integers.
size_t jobBytes(size_t views) {
  const size_t bytes = views * sizeof(AttentionJob);
  return (bytes + alignof(int64_t) - 1) / alignof(int64_t) * alignof(int64_t);
}

} // namespace

size_t AttentionJobs::bytes(size_t views) {
  return jobBytes(views) + (views + 1) * sizeof(int64_t);
}

AttentionJobs::AttentionJobs(std::span<const AttentionView> views, std::span<std::byte> memory)
    : jobs(reinterpret_cast<AttentionJob*>(memory.data()), views.size()),
      firstUnits(reinterpret_cast<int64_t*>(memory.data() + jobBytes(views.size())),
                 views.size() + 1) {
  static_assert(std::is_trivially_destructible_v<AttentionJob>);
  int64_t units = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    new (&jobs[i]) AttentionJob(views[i]);
    new (&firstUnits[i]) int64_t(units);
    units += jobs[i].units();
    products += productsOf(views[i]);
  }
  new (&firstUnits.back()) int64_t(units);
}

int64_t AttentionJobs::mostWorkers(int64_t threads) const {
  return std::min(firstUnits.back(), threads);
}

int64_t AttentionJobs::workers(int64_t threads) const {
  constexpr double fewProducts = 65536;
  return std::min<int64_t>(mostWorkers(threads), products > fewProducts ? threads : 1);
}

void AttentionJobs::work(int64_t worker, int64_t workers) {
  const int64_t units = firstUnits.back();
  for (int64_t unit = next.fetch_add(1); unit < units; unit = next.fetch_add(1)) {
    const auto after = std::upper_bound(firstUnits.begin(), firstUnits.end(), unit);
    const auto job = static_cast<size_t>(after - firstUnits.begin() - 1);
    const int64_t own = unit - firstUnits[job];
    jobs[job].run(own, worker, own + workers);
  }
}

} // namespace kvopt::simd
