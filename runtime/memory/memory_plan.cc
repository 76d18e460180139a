// Placement of blocks with lifetimes: greedy by size, or by time if there are very many.
#include "runtime/memory/memory_plan.h"

#include "runtime/memory/buffer.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace kvopt::runtime {

namespace {

constexpr int64_t alignment = bufferAlignment;

/// Maximum number of bytes that are live at the same time.
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
  // At the same instant, blocks begin before others end.
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

/// Blocks that were placed, indexed by the instants at which they are live.
class PlacedBlocks {
public:
  explicit PlacedBlocks(llvm::ArrayRef<StorageInterval> blocks) : intervals(blocks) {
    int64_t latest = 0;
    for (const StorageInterval& interval : intervals)
      latest = std::max(latest, interval.firstUse);
    while (leaves <= latest)
      leaves *= 2;
    spans.resize(static_cast<size_t>(2 * leaves));
  }

  void insert(size_t block) {
    byFirstUse.emplace(intervals[block].firstUse, block);
    // Nodes of a segment tree that together cover the block's lifetime.
    int64_t low = intervals[block].firstUse + leaves;
    int64_t high = std::min(intervals[block].lastUse, leaves - 1) + leaves + 1;
    for (; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1)
        spans[static_cast<size_t>(low++)].push_back(block);
      if (high % 2 == 1)
        spans[static_cast<size_t>(--high)].push_back(block);
    }
  }

  /// Finds every block that is live at some instant of the interval, without duplicates.
  void findOverlapping(const StorageInterval& interval, std::vector<size_t>& found) const {
    found.clear();
    for (int64_t node = interval.firstUse + leaves; node > 0; node /= 2)
      llvm::append_range(found, spans[static_cast<size_t>(node)]);
    auto later = byFirstUse.upper_bound(interval.firstUse);
    for (; later != byFirstUse.end() && later->first <= interval.lastUse; ++later)
      found.push_back(later->second);
  }

private:
  llvm::ArrayRef<StorageInterval> intervals;
  std::multimap<int64_t, size_t> byFirstUse;
  int64_t leaves = 1;
  std::vector<llvm::SmallVector<size_t, 1>> spans;
};

/// The smallest gap between `blocks`, which are sorted by offset, with room for `size` bytes, or
/// the end of the last block.
int64_t smallestGap(const std::vector<size_t>& blocks, const std::vector<int64_t>& sizes,
                    const std::vector<int64_t>& offsets, int64_t size) {
  int64_t bestOffset = -1;
  int64_t bestGap = INT64_MAX;
  int64_t end = 0;
  for (size_t block : blocks) {
    const int64_t gap = offsets[block] - end;
    if (gap >= size && gap < bestGap) {
      bestGap = gap;
      bestOffset = end;
    }
    end = std::max(end, offsets[block] + sizes[block]);
  }
  return bestOffset >= 0 ? bestOffset : end;
}

/// Limit for greedy placement by size, which compares every pair of blocks with overlapping
/// lifetimes. With more pairs, blocks are placed in the order of their first use.
constexpr size_t maxPairs = size_t{1} << 23;

/// Places the largest blocks first, each in the smallest gap between blocks with overlapping
/// lifetimes. False if this compares too many pairs.
bool placeBySize(llvm::ArrayRef<StorageInterval> intervals, const std::vector<int64_t>& sizes,
                 MemoryPlan& plan) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (sizes[a] != sizes[b])
      return sizes[a] > sizes[b];
    return intervals[a].firstUse != intervals[b].firstUse
               ? intervals[a].firstUse < intervals[b].firstUse
               : a < b;
  });
  PlacedBlocks placed(intervals);
  std::vector<size_t> overlapping;
  size_t pairs = 0;
  for (size_t current : order) {
    if (sizes[current] == 0)
      continue;
    placed.findOverlapping(intervals[current], overlapping);
    pairs += overlapping.size();
    if (pairs > maxPairs)
      return false;
    std::sort(overlapping.begin(), overlapping.end(), [&](size_t a, size_t b) {
      return plan.offsets[a] != plan.offsets[b] ? plan.offsets[a] < plan.offsets[b] : a < b;
    });
    plan.offsets[current] = smallestGap(overlapping, sizes, plan.offsets, sizes[current]);
    plan.peak = std::max(plan.peak, plan.offsets[current] + sizes[current]);
    placed.insert(current);
  }
  return true;
}

/// Memory that is not in use: blocks that neither touch nor overlap.
class FreeBlocks {
public:
  /// Takes `size` bytes from the smallest free block with enough room, or from the end of the
  /// memory, which grows. Returns their offset.
  int64_t take(int64_t size, int64_t& end) {
    auto best = bySize.lower_bound({size, 0});
    if (best == bySize.end()) {
      const int64_t offset = takeLast(end);
      end = offset + size;
      return offset;
    }
    const auto [length, offset] = *best;
    bySize.erase(best);
    byOffset.erase(offset);
    if (length > size)
      insert(offset + size, length - size);
    return offset;
  }

  void give(int64_t offset, int64_t size) {
    auto next = byOffset.lower_bound(offset);
    if (next != byOffset.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        offset = previous->first;
        size += previous->second;
        bySize.erase({previous->second, previous->first});
        byOffset.erase(previous);
      }
    }
    if (next != byOffset.end() && offset + size == next->first) {
      size += next->second;
      bySize.erase({next->second, next->first});
      byOffset.erase(next);
    }
    insert(offset, size);
  }

private:
  void insert(int64_t offset, int64_t size) {
    byOffset[offset] = size;
    bySize.insert({size, offset});
  }

  /// Removes the free block at the end of the memory. Returns its offset.
  int64_t takeLast(int64_t end) {
    if (byOffset.empty())
      return end;
    auto last = std::prev(byOffset.end());
    const auto [offset, size] = *last;
    if (offset + size != end)
      return end;
    bySize.erase({size, offset});
    byOffset.erase(last);
    return offset;
  }

  std::map<int64_t, int64_t> byOffset;
  std::set<std::pair<int64_t, int64_t>> bySize; ///< size, offset
};

/// Places blocks in the order of their first use, each in the smallest block that is free at that
/// time.
void placeByTime(llvm::ArrayRef<StorageInterval> intervals, const std::vector<int64_t>& sizes,
                 MemoryPlan& plan) {
  std::vector<size_t> byFirst(intervals.size());
  std::iota(byFirst.begin(), byFirst.end(), size_t{0});
  std::vector<size_t> byLast = byFirst;
  std::stable_sort(byFirst.begin(), byFirst.end(), [&](size_t a, size_t b) {
    return intervals[a].firstUse != intervals[b].firstUse
               ? intervals[a].firstUse < intervals[b].firstUse
               : sizes[a] > sizes[b];
  });
  std::stable_sort(byLast.begin(), byLast.end(),
                   [&](size_t a, size_t b) { return intervals[a].lastUse < intervals[b].lastUse; });
  plan.peak = 0;
  FreeBlocks free;
  size_t ended = 0;
  for (size_t current : byFirst) {
    for (; intervals[byLast[ended]].lastUse < intervals[current].firstUse; ++ended)
      if (sizes[byLast[ended]] != 0)
        free.give(plan.offsets[byLast[ended]], sizes[byLast[ended]]);
    plan.offsets[current] = sizes[current] != 0 ? free.take(sizes[current], plan.peak) : 0;
  }
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

  MemoryPlan plan;
  plan.offsets.assign(intervals.size(), 0);
  plan.lowerBound = mostLive(intervals, sizes);
  if (!placeBySize(intervals, sizes, plan))
    placeByTime(intervals, sizes, plan);
  return plan;
}

} // namespace kvopt::runtime
