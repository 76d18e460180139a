// Numbers of tokens at which a model may change its computation.
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

/// Constants of at least 2 that determine what a token sees or its position, distinct and in
/// ascending order: operands of comparisons, sums, minima, maxima, remainders and quotients of
/// values computed from extents and integer inputs, bounds of Slice along an axis whose extent is
/// not fixed, diagonals of Trilu, and windows of attention operators. Values derived from the
/// inputs named in `tokens` concern the vocabulary, not the sequence, and are left out.
///
/// The list may contain too many entries. A length that is part of the data and not compared, such
/// as the extent of a table of positions, is missing.
std::vector<ComparedLength> comparedLengths(const ir::Model& model,
                                            const std::vector<std::string>& tokens);

} // namespace kvopt::analysis
