// Table of mapped files.
#include "support/mapped_ranges.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace kvopt {
namespace {

enum RangeState : int { Vacant, Reserved, Entered };

struct RangeSlot {
  std::atomic<int> state{Vacant};
  std::atomic<uintptr_t> begin{0};
  std::atomic<size_t> size{0};
  std::atomic<const char*> path{nullptr};
};
std::array<RangeSlot, 4096> ranges;
// Slot at which the search for a vacant slot starts.
std::atomic<size_t> nextRange{0};

int enter(std::span<const std::byte> bytes, const char* path) {
  const size_t start = nextRange.load(std::memory_order_relaxed);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const size_t index = (start + i) % ranges.size();
    RangeSlot& range = ranges[index];
    int expected = Vacant;
    if (!range.state.compare_exchange_strong(expected, Reserved))
      continue;
    range.begin.store(reinterpret_cast<uintptr_t>(bytes.data()));
    range.size.store(bytes.size());
    range.path.store(path);
    range.state.store(Entered);
    nextRange.store(index + 1, std::memory_order_relaxed);
    return static_cast<int>(index);
  }
  return -1;
}

} // namespace

MappedRange::MappedRange(std::span<const std::byte> bytes, const std::string& path) {
  if (!bytes.empty())
    slot = enter(bytes, path.c_str());
}

MappedRange::~MappedRange() {
  if (slot >= 0)
    ranges[static_cast<size_t>(slot)].state.store(Vacant);
}

const char* mappedFileAt(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (RangeSlot& range : ranges)
    if (range.state.load() == Entered && at - range.begin.load() < range.size.load())
      return range.path.load();
  return nullptr;
}

} // namespace kvopt
