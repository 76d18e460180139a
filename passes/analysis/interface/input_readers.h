// The readers of a model's input, and the roles in which they read it.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

#include "llvm/ADT/SmallVector.h"

#include <string>
#include <vector>

namespace kvopt::analysis {

/// Readers found by following an input through operators that keep its elements.
struct InputReaders {
  /// A constant table that the input indexes.
  struct Table {
    int64_t rows = 0; ///< -1: not fixed
    int64_t elements = 0;
  };
  std::vector<Table> tables;
  /// An operand that is a number of tokens or rows.
  struct Length {
    ir::LengthFeed feed = ir::LengthFeed::PastLength; ///< meaning of the operand
    ir::Dim offset;   ///< amount added to the input on the way; unknown if it cannot be determined
    std::string node; ///< name of the operator, for messages
  };
  /// Operands whose meaning the operator defines, such as GroupQueryAttention's `seqlens_k`.
  std::vector<Length> lengths;
  /// Starts of a Range or Slice, which follow the earlier tokens, and ends.
  std::vector<Length> bounds;
  bool isAngle = false;        ///< multiplied by numbers, as positions are by frequencies
  bool isBatchIndex = false;   ///< selects along an axis of another input, as beam indices do
  bool isSelfCompared = false; ///< elements with other elements
  bool isCompared = false;     ///< with other positions, or its distance from them with a number
  bool isSummed = false;       ///< added to an index
  /// Whether it ends a Range from 0 whose numbers are added to something: a number of tokens, not a
  /// position.
  bool isCount = false;
  /// Other one-element inputs that it is added to.
  llvm::SmallVector<const ir::Value*, 2> addends;
  /// Whether it is multiplied by a constant triangle that hides later keys: 0 removes the triangle.
  bool isSwitch = false;

  bool isMask = false;     ///< reaches scores
  bool isAdded = false;    ///< added to scores unchanged
  bool hidesByOne = false; ///< for a mask that is not added: 1 or true hides
  /// Whether the readers of a mask do not show which of its numbers hide, or disagree.
  bool isUncertainMask = false;

  /// Whether it is a mask in which 0 or false hides a key.
  bool hidesByZero() const { return isMask && !hidesByOne && !isUncertainMask; }

  bool any() const {
    return !tables.empty() || isAngle || isBatchIndex || isSelfCompared || isCompared || isSummed ||
           isCount || !lengths.empty() || !bounds.empty() || !addends.empty() || isMask || isSwitch;
  }
};

/// Follows the input forward, also into branches. Visits at most `budget` operands and subtracts
/// the visited ones from it. Finds nothing if the budget is too small.
InputReaders readersOf(const ir::Value& input, size_t& budget);

} // namespace kvopt::analysis
