// Bytes as a sequence of choices, for targets whose input says what to do instead of being read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

namespace kvopt::fuzz {

/// One byte per choice, and the first alternative once there are no more.
class Choices {
public:
  explicit Choices(std::span<const uint8_t> choices) : bytes(choices) {}

  bool isEmpty() const { return bytes.empty(); }
  /// A number below `count`, which is at least 1.
  size_t below(size_t count) {
    if (bytes.empty())
      return 0;
    const size_t choice = bytes.front() % count;
    bytes = bytes.subspan(1);
    return choice;
  }
  template <class Range> auto of(Range& range) { return range[below(std::size(range))]; }

private:
  std::span<const uint8_t> bytes;
};

} // namespace kvopt::fuzz
