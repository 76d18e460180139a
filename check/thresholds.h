// Thresholds: places where a model's behavior changes with a size.
#pragma once

#include "ir/node.h"

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace kvopt::check {

/// What two quantities that a node compares are in the steps of a scope. A node that sees both
/// sides of a threshold, and the threshold itself, behaves alike beyond the scope. If it sees one
/// side only, larger sizes must not come nearer to the threshold.
class Thresholds {
public:
  /// Numbers of batch rows, earlier tokens, new tokens, free rows of buffers, and other extents.
  using Extents = std::array<int64_t, 5>;
  /// Starts a step. Steps with padding do not count as larger or smaller ones.
  void enter(const Extents& extents, bool isPadded) { current = {extents, isPadded}; }
  /// Element `place` of `count` compared ones: left minus right. `caller` is the node of the main
  /// graph whose function `node` belongs to, or `node` itself. `isExact` is false for numbers that
  /// need not meet the threshold, and `isData` is true for tokens, which no size determines.
  void note(const ir::Node& caller, const ir::Node& node, size_t place, size_t count,
            double difference, bool isExact, bool isData);
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
    bool comesNearer() const;
    bool isCrossed(bool isExact) const { return below && above && (equal || !isExact); }
  };
  struct Comparison {
    std::string node;
    bool isExact = true, isData = false, isFixed = true;
    size_t count = 0;
    Seen all;
    std::vector<Seen> places; ///< of comparisons with few elements, whose number is fixed
  };

  Sizes current;
  std::map<std::pair<const ir::Node*, const ir::Node*>, size_t> indices;
  std::vector<Comparison> comparisons;
};

} // namespace kvopt::check
