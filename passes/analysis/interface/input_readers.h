// What reads an input of a model, and in which capacity.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

#include "llvm/ADT/SmallVector.h"

#include <string>
#include <vector>

namespace kvopt::analysis {

/// What was found on the ways from an input through operators that keep its elements.
struct InputReaders {
  /// A constant table that the input indexes.
  struct Table {
    int64_t rows = 0; ///< -1: not fixed
    int64_t elements = 0;
  };
  std::vector<Table> tables;
  /// An operand that is a number of tokens or rows.
  struct Length {
    ir::LengthFeed feed = ir::LengthFeed::PastLength; ///< what the operand is
    ir::Dim offset;   ///< what was added to the input on the way; unknown where that is not told
    std::string node; ///< the operator, as messages name it
  };
  /// Operands whose meaning their operator defines, such as GroupQueryAttention's `seqlens_k`.
  std::vector<Length> lengths;
  /// Where a Range or Slice starts, which is behind the earlier tokens, and where it ends.
  std::vector<Length> bounds;
  bool isAngle = false;      ///< multiplied by numbers, as a position is by frequencies
  bool isBatchIndex = false; ///< selects along an axis of another input, as beams do
  bool isSelfCompared = false;
  bool isCompared = false;
  bool isSummed = false; ///< added to an index
  /// Ends a Range from 0 whose numbers are added to something: a number of tokens, not a place.
  bool isCount = false;
  /// Other inputs of one element that it is added to.
  llvm::SmallVector<const ir::Value*, 2> addends;
  /// Is multiplied with a constant triangle that hides later keys: 0 takes it away.
  bool isSwitch = false;

  bool isMask = false;     ///< reaches scores
  bool isAdded = false;    ///< to scores, as it is
  bool hidesByOne = false; ///< of a mask that is not added: 1 or true hides

  bool any() const {
    return !tables.empty() || isAngle || isBatchIndex || isSelfCompared || isCompared || isSummed ||
           isCount || !lengths.empty() || !bounds.empty() || !addends.empty() || isMask || isSwitch;
  }
};

/// Follows the input forward, into branches too. Visits at most `budget` operands, which it
/// decreases by those visited. Finds nothing where the budget is too small.
InputReaders readersOf(const ir::Value& input, size_t& budget);

} // namespace kvopt::analysis
