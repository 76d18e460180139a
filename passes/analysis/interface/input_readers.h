// What reads an input of a model, and in which capacity.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

namespace kvopt::analysis {

/// What was found on the ways from an input through operators that keep its elements.
struct InputReaders {
  /// A constant table that the input indexes.
  struct Table {
    int64_t rows = 0; ///< -1: not fixed
    int64_t elements = 0;
  };
  std::vector<Table> tables;
  bool isAngle = false;      ///< multiplied by numbers, as a position is by frequencies
  bool isBatchIndex = false; ///< selects along an axis of another input, as beams do
  bool isSelfCompared = false;
  bool isCompared = false;
  bool isSummed = false; ///< added to an index, or where a Range or Slice starts
  bool isEnd = false;    ///< where a Range or Slice ends
  /// What a fused operator takes it as.
  std::optional<ir::LengthFeed> fused;

  bool isMask = false;     ///< reaches scores
  bool isAdded = false;    ///< to scores, as it is
  bool hidesByOne = false; ///< of a mask that is not added: 1 or true hides

  bool any() const {
    return !tables.empty() || isAngle || isBatchIndex || isSelfCompared || isCompared || isSummed ||
           isEnd || fused || isMask;
  }
};

/// Follows the input forward, into branches too. Visits at most `budget` operands, which it
/// decreases by those visited. Finds nothing where the budget is too small.
InputReaders readersOf(const ir::Value& input, size_t& budget);

} // namespace kvopt::analysis
