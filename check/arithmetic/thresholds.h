// Thresholds: places where a model's behavior changes with a size.
#pragma once

#include "ir/node.h"

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace kvopt::check {

/// Constants of at least this size mean "to the end".
inline constexpr int64_t unlimited = int64_t(1) << 30;

/// What two quantities that a node compares are in the steps of a scope. A node that sees both
/// sides of a threshold, and the threshold itself, behaves alike beyond the scope. If it sees one
/// side only, larger sizes must not come nearer to the threshold.
class Thresholds {
public:
  /// Numbers of batch rows, earlier tokens, new tokens, free rows of buffers, and other extents.
  using Extents = std::array<int64_t, 5>;
  /// Starts a step. Steps with padding do not count as larger or smaller ones.
  void enter(const Extents& extents, bool isPadded) { current = {extents, isPadded}; }
  /// Declares that a capacity limits the numbers of earlier and new tokens, and that the scope has
  /// the steps at this limit. What does not come nearer in between does not do so beyond.
  void limitLengths() { areLengthsLimited = true; }
  /// One of the elements that a node compares.
  struct Element {
    size_t place = 0;
    size_t count = 1; ///< number of elements
    /// Constant of the model with which it is compared, or a number of the comparison.
    double constant = 0;
    /// Period of the difference as a function of lengths, apart from a multiple of them; 0 if it
    /// has none, and -1 if it is unknown.
    int64_t period = 0;
  };
  /// Notes the difference of an element, left minus right. `caller` is the node of the main graph
  /// whose function `node` belongs to, or `node` itself. `isExact` is false for numbers that need
  /// not meet the threshold, and `isData` is true for tokens, which no size determines.
  void note(const ir::Node& caller, const ir::Node& node, const Element& element, double difference,
            bool isExact, bool isData);
  /// Notes that results depend on something that no size determines.
  void noteOpen(const std::string& why) {
    if (open.empty())
      open = why;
  }
  /// Why a comparison may turn out differently beyond the scope; empty if none may.
  std::string gap() const;
  void clear();

private:
  struct Sizes {
    Extents extents{1, 0, 1, 0, 0};
    bool isPadded = false;
  };
  struct Seen {
    bool below = false, equal = false, above = false;
    /// The smallest distance from the threshold in each step without padding.
    std::vector<std::pair<Sizes, double>> nearest;
    void add(const Sizes& step, double difference);
    bool comesNearer(bool areLengthsLimited) const;
    /// The same for a difference with a period: only lengths that differ by multiples of it show
    /// whether it comes nearer. True unless there are such steps for all remainders.
    bool comesNearerByPeriods(int64_t period) const;
    bool isCrossed(bool isExact) const { return below && above && (equal || !isExact); }
  };
  struct Comparison {
    std::string node;
    bool isExact = true, isData = false, isFixed = true;
    size_t count = 0;
    int64_t period = 0;
    std::map<double, Seen> ofConstants; ///< all elements with the same constant
    /// The same for each place, of comparisons with few elements, whose number is fixed.
    std::map<std::pair<double, size_t>, Seen> ofPlaces;
  };

  Sizes current;
  bool areLengthsLimited = false;
  std::string open;
  std::map<std::pair<const ir::Node*, const ir::Node*>, size_t> indices;
  std::vector<Comparison> comparisons;
};

} // namespace kvopt::check
