// DecoderStep: tokens of one step, before they are converted to tensors.
#pragma once

#include "ir/manifest/input_recipe.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace kvopt::runtime {

/// Tokens of one step, and the mask of the whole sequence.
struct DecoderStep {
  /// [batch][new tokens]; all rows have the same length.
  std::vector<std::vector<int64_t>> tokens;
  /// [batch][past + new]: 0 hides a position (padding). Empty: nothing is hidden.
  std::vector<std::vector<uint8_t>> visible;
  int64_t pastLength = 0;
  /// [batch]: the row that each row continues, for inputs that reorder rows. Empty: each row
  /// continues itself.
  std::vector<int64_t> batchRows = {};
  /// Whether the tokens are synthetic: an id without an entry in the graph's tables is replaced by
  /// another, and codebooks receive different ids.
  bool isMadeUp = false;
  /// The user's choice of values, with priority over everything else.
  llvm::ArrayRef<ir::InputRecipe> recipes = {};

  int64_t batch() const { return static_cast<int64_t>(tokens.size()); }
  int64_t newTokens() const { return static_cast<int64_t>(tokens.front().size()); }
  int64_t total() const { return pastLength + newTokens(); }
};

/// An error if there are no tokens, or if batch rows differ in length.
llvm::Error checkTokens(const DecoderStep& step);

} // namespace kvopt::runtime
