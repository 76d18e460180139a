// Greedy-by-size placement of blocks with lifetimes.
#include "runtime/memory_plan.h"

#include "ir/diagnostic.h"
#include "runtime/buffer.h"

#include <algorithm>
#include <numeric>

namespace kvopt {

namespace {

constexpr int64_t alignment = bufferAlignment;

/// The most bytes live at one instant.
int64_t mostLive(llvm::ArrayRef<StorageInterval> intervals, const std::vector<int64_t>& sizes) {
  struct Event {
    int64_t time;
    int64_t change;
  };
  std::vector<Event> events;
  events.reserve(2 * intervals.size());
  for (size_t i = 0; i < intervals.size(); ++i) {
    events.push_back({intervals[i].firstUse, sizes[i]});
    events.push_back({intervals[i].lastUse, -sizes[i]});
  }
  // At one instant blocks begin before others end.
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.change > b.change;
  });
  int64_t live = 0;
  int64_t most = 0;
  for (const Event& event : events) {
    live += event.change;
    most = std::max(most, live);
  }
  return most;
}

} // namespace

llvm::Expected<MemoryPlan> planMemory(llvm::ArrayRef<StorageInterval> intervals) {
  std::vector<int64_t> sizes(intervals.size());
  int64_t total = 0;
  for (size_t i = 0; i < intervals.size(); ++i) {
    assert(intervals[i].bytes >= 0 && intervals[i].firstUse <= intervals[i].lastUse);
    if (__builtin_add_overflow(intervals[i].bytes, alignment - 1, &sizes[i]) ||
        __builtin_add_overflow(total, sizes[i], &total))
      return invalid("the intermediate tensors' sizes overflow");
    sizes[i] = sizes[i] / alignment * alignment;
  }

  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (sizes[a] != sizes[b])
      return sizes[a] > sizes[b];
    return intervals[a].firstUse != intervals[b].firstUse
               ? intervals[a].firstUse < intervals[b].firstUse
               : a < b;
  });

  MemoryPlan plan;
  plan.offsets.assign(intervals.size(), 0);
  plan.lowerBound = mostLive(intervals, sizes);
  std::vector<size_t> placed; // by offset
  placed.reserve(intervals.size());
  for (size_t current : order) {
    if (sizes[current] == 0)
      continue;
    int64_t bestOffset = -1;
    int64_t bestGap = INT64_MAX;
    int64_t end = 0;
    for (size_t other : placed) {
      if (intervals[other].lastUse < intervals[current].firstUse ||
          intervals[current].lastUse < intervals[other].firstUse)
        continue;
      int64_t gap = plan.offsets[other] - end;
      if (gap >= sizes[current] && gap < bestGap) {
        bestGap = gap;
        bestOffset = end;
      }
      end = std::max(end, plan.offsets[other] + sizes[other]);
    }
    int64_t offset = bestOffset >= 0 ? bestOffset : end;
    plan.offsets[current] = offset;
    plan.peak = std::max(plan.peak, offset + sizes[current]);
    auto position =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](int64_t value, size_t other) { return value < plan.offsets[other]; });
    placed.insert(position, current);
  }
  return plan;
}

} // namespace kvopt
