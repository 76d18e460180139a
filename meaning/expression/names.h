// What the leaves of formulas are called, and which integers they may be.
#pragma once

#include "meaning/expression/expression.h"
#include "llvm/ADT/StringRef.h"
#include <deque>
#include <limits>
#include <string>

namespace kvopt::meaning {

/// Integers from `low` to `high`. The ends of int64_t mean that there is no bound.
struct Range {
  static constexpr int64_t noLow = std::numeric_limits<int64_t>::min();
  static constexpr int64_t noHigh = std::numeric_limits<int64_t>::max();

  int64_t low = noLow;
  int64_t high = noHigh;

  friend bool operator==(const Range& a, const Range& b) = default;
};

/// The largest extent of a tensor that a formula stands for. Whoever proves something with it holds
/// the proof for all extents that fit a machine's memory.
inline constexpr int64_t mostExtent = int64_t(1) << 40;

/// A symbol, an index or a named value.
struct Named {
  std::string name;
  Range range;           ///< of a symbol, or of the elements of a value of integers
  bool isOpaque = false; ///< whether no definition says what the value is
};

/// The numbers of `Op::Symbol`, `Op::Index` and `Op::Element` count these.
class Names {
public:
  int64_t add(Named named) {
    all_.push_back(std::move(named));
    return static_cast<int64_t>(all_.size()) - 1;
  }
  const Named& operator[](int64_t number) const { return all_[static_cast<size_t>(number)]; }

private:
  std::deque<Named> all_;
};

} // namespace kvopt::meaning
