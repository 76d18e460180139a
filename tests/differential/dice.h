// Dice: random choices that are the same on every platform.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

namespace kvopt::differential {

using Extents = std::vector<int64_t>;

class Dice {
public:
  explicit Dice(uint64_t seed) : engine(seed) {}

  /// An integer in [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine() % (static_cast<uint64_t>(high - low) + 1));
  }
  size_t below(size_t count) { return engine() % count; }
  bool oneIn(size_t count) { return below(count) == 0; }
  template <class T> T anyOf(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  template <class T> const T& anyOf(const std::vector<T>& values) {
    return values[below(values.size())];
  }

  /// An extent, which is small and sometimes 0 or 1.
  int64_t extent() { return oneIn(14) ? 0 : oneIn(4) ? 1 : between(2, 4); }
  /// Extents of at least `low` and at most `high` axes.
  Extents extents(int64_t low, int64_t high) {
    Extents result(static_cast<size_t>(between(low, high)));
    for (int64_t& each : result)
      each = extent();
    return result;
  }
  /// An axis of a tensor of `rank` axes, counted from the start or from the end.
  int64_t axis(size_t rank) {
    const auto count = static_cast<int64_t>(rank);
    return between(-count, count - 1);
  }
  /// Some of the axes of a tensor, in any order, each counted from the start or from the end.
  std::vector<int64_t> axes(size_t rank) {
    std::vector<int64_t> result;
    for (int64_t each : shuffled(rank))
      if (oneIn(2))
        result.push_back(oneIn(2) ? each : each - static_cast<int64_t>(rank));
    return result;
  }
  /// The numbers from 0 to `count` - 1 in any order.
  std::vector<int64_t> shuffled(size_t count) {
    std::vector<int64_t> result(count);
    for (size_t i = 0; i < count; ++i) {
      result[i] = static_cast<int64_t>(i);
      std::swap(result[i], result[below(i + 1)]);
    }
    return result;
  }
  uint64_t bits() { return engine(); }

private:
  std::mt19937_64 engine;
};

} // namespace kvopt::differential
