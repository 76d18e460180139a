// DecoderStep: the tokens of one step, before they are tensors.
#pragma once

#include "runtime/session/input_recipe.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace kvopt::runtime {

/// One step's tokens with the whole sequence's mask.
struct DecoderStep {
  /// [batch][new tokens]; all rows equally long.
  std::vector<std::vector<int64_t>> tokens;
  /// [batch][past + new]: 0 hides a position (padding). Empty: nothing is hidden.
  std::vector<std::vector<uint8_t>> visible;
  int64_t pastLength = 0;
  /// [batch]: the row that each row continues, for inputs that reorder rows. Empty: its own.
  std::vector<int64_t> batchRows = {};
  /// The tokens are made up: where the graph has no entry for an id, another one is fed, and
  /// codebooks get different ones.
  bool isMadeUp = false;
  /// What the user says; comes before everything else.
  llvm::ArrayRef<InputRecipe> recipes = {};

  int64_t batch() const { return static_cast<int64_t>(tokens.size()); }
  int64_t newTokens() const { return static_cast<int64_t>(tokens.front().size()); }
  int64_t total() const { return pastLength + newTokens(); }
};

/// An error where there are no tokens, and where batch rows differ in length.
llvm::Error checkTokens(const DecoderStep& step);

} // namespace kvopt::runtime
