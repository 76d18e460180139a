// Loops over the codes in the order of the strips.
#include "runtime/linear/code_strips.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace kvopt::linear {
namespace {

constexpr int64_t width = 64;
constexpr int64_t depth = 64;
constexpr int64_t group = 4;

int64_t roundedUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

} // namespace

int64_t codeStripBytes(int64_t inner, int64_t columns) {
  return roundedUp(inner, depth) * roundedUp(columns, width);
}

void packCodeStrips(const uint8_t* codes, bool isSigned, int64_t inner, int64_t columns,
                    int64_t begin, int64_t end, int8_t* strips, int32_t* sums) {
  assert(begin % width == 0 && end <= columns);
  const int64_t padded = roundedUp(inner, depth);
  // Subtracting 128 from an unsigned code flips its highest bit.
  const uint8_t flip = isSigned ? 0 : 128;
  for (int64_t first = begin; first < end; first += width) {
    int8_t* strip = strips + first * padded;
    const int64_t count = std::min(width, end - first);
    std::memset(strip, 0, static_cast<size_t>(padded * width));
    std::fill_n(sums + first, count, 0);
    for (int64_t k = 0; k < inner; ++k) {
      const uint8_t* row = codes + k * columns + first;
      int8_t* to = strip + k / group * group * width + k % group;
      for (int64_t n = 0; n < count; ++n) {
        const auto number = static_cast<int8_t>(row[n] ^ flip);
        to[n * group] = number;
        sums[first + n] += number;
      }
    }
  }
}

} // namespace kvopt::linear
