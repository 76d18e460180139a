// EquivalencePlan: the steps that two models take side by side, and their tokens.
#pragma once

#include "runtime/equivalence/comparison.h"
#include "runtime/session/decoder_inputs.h"

#include <random>

namespace kvopt::runtime {

enum class Padding { None, Left, Right };

/// One run of a comparison, from empty caches.
struct EquivalencePlan {
  int64_t prompt = 33;
  std::vector<int64_t> chunks = {16, 1, 7};
  int64_t decodeSteps = 64;
  /// Tokens of a decode step; more than one for models that take no single ones.
  int64_t stepTokens = 1;
  int64_t batch = 2;
  /// Which prompt positions of some batch rows are hidden (see PlannedSteps).
  Padding padding = Padding::None;
  /// With padding, how many of the first positions are padded as a prompt is, for models that take
  /// it in several steps; 0: the made-up rows or, without any, the prompt.
  int64_t padded = 0;
  /// Rows that every cache has before the first step, made up (`Session::preset`): of models whose
  /// caches have a fixed extent, which take no other number.
  int64_t pastRows = 0;
  /// Keys that the narrowest window of the first model shows a token, at least; 0 without windows.
  int64_t window = 0;
  /// Batch rows of the first model advance by as many tokens as its mask shows, and what is beyond
  /// them in its caches and in the results of a prefill is not defined (GroupQueryAttention).
  bool rowsAdvanceByMask = false;
  /// An input picks batch rows of the caches: at random where nothing is hidden.
  bool reordersRows = false;
  /// Scores that are closer than twice the tolerance may come in either order: one of the models
  /// rounds what attention computes to 16 bits on the way.
  bool allowsNearTies = false;
  /// What the user wants the inputs to be fed.
  std::vector<InputRecipe> recipes;
  uint64_t seed = 1;
  /// Token ids are drawn from 0 … vocabulary-1.
  int64_t vocabulary = 0;
  Tolerance tolerance{1e-4, 1e-4};

  int64_t totalTokens() const;
  /// The positions that padding concerns.
  int64_t paddedPositions() const;
};

/// The tokens of a plan, step by step: the same for the same seed.
///
/// With padding, batch row 0 has 2 hidden positions, row 1 none and row 2 a third of the prompt,
/// and so on in turn; at least one position of a prompt is shown. They are the first positions of
/// the prompt (Left) or its last ones (Right). `paddedPositions` says how long the prompt is.
class PlannedSteps {
public:
  explicit PlannedSteps(const EquivalencePlan& steps);

  /// The next step: `tokens` tokens after `pastLength` earlier ones; `startsAnew` for a model that
  /// has no caches.
  DecoderStep next(int64_t tokens, int64_t pastLength, bool startsAnew);

  /// Whether the positions up to `position` of a batch row are shown (1) or hidden (0). Requires a
  /// plan with padding and steps that reach as far.
  llvm::ArrayRef<uint8_t> shown(int64_t row, int64_t position) const {
    return llvm::ArrayRef<uint8_t>(visible[static_cast<size_t>(row)])
        .take_front(static_cast<size_t>(position) + 1);
  }

private:
  bool isHidden(size_t row, int64_t position) const;

  const EquivalencePlan& plan;
  std::mt19937_64 random;
  std::vector<std::vector<uint8_t>> visible;
};

} // namespace kvopt::runtime
