// Numbers of tokens at which a model may begin to compute something else.
#pragma once

#include "ir/model.h"

#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace kvopt::analysis {

/// A constant that positions, lengths or mask entries are compared with: the width of a window, the
/// length from which rotary frequencies change, the largest relative position.
struct ComparedLength {
  int64_t tokens = 0;
  std::string where; ///< the node that compares
};

/// The constants of at least 2 that decide what a token sees or where it is, each once and in
/// ascending order: the operands of comparisons, sums, minima, maxima, remainders and quotients
/// of what is computed from extents and integer inputs, where Slice cuts along an axis whose extent
/// is not fixed, diagonals of Trilu, and windows of attention operators. What is derived from the
/// inputs named in `tokens` is a number of the vocabulary, not of the sequence, and is left out.
///
/// The list errs on the side of too many entries. A length that is not compared but built into
/// the data, such as the extent of a table of positions, is not in it.
std::vector<ComparedLength> comparedLengths(const ir::Model& model,
                                            const std::vector<std::string>& tokens);

} // namespace kvopt::analysis
