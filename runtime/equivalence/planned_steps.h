// EquivalencePlan: steps that two models take, and their tokens.
#pragma once

#include "runtime/equivalence/comparison.h"
#include "runtime/session/decoder_inputs.h"

#include <functional>
#include <random>

namespace kvopt::runtime {

enum class Padding { None, Left, Right };

/// One run of a comparison, starting from empty caches.
struct EquivalencePlan {
  int64_t prompt = 33;
  std::vector<int64_t> chunks = {16, 1, 7};
  int64_t decodeSteps = 64;
  /// Number of tokens of a decode step; more than one for models that do not take single tokens.
  int64_t stepTokens = 1;
  int64_t batch = 2;
  /// Hidden prompt positions of some batch rows (see PlannedSteps).
  Padding padding = Padding::None;
  /// With padding, the number of first positions that are padded like a prompt, for models that
  /// take a prompt in several steps; 0: the synthetic rows or, without them, the prompt.
  int64_t padded = 0;
  /// Number of synthetic rows in every cache before the first step (`Session::preset`), for models
  /// that require caches with a fixed extent.
  int64_t pastRows = 0;
  /// Minimum number of keys that a token sees through the narrowest window of the first model; 0
  /// without windows.
  int64_t window = 0;
  /// Whether each batch row of the first model advances by the number of tokens in its mask, and
  /// later rows of its caches and of a prefill's results are undefined (GroupQueryAttention).
  bool rowsAdvanceByMask = false;
  /// Whether an input reorders batch rows of the caches: randomly if nothing is hidden.
  bool reordersRows = false;
  /// Whether scores that are closer than twice the tolerance may come in either order, because one
  /// of the models rounds intermediate results of attention to 16 bits.
  bool allowsNearTies = false;
  /// User's choice of values for inputs.
  std::vector<ir::InputRecipe> recipes;
  uint64_t seed = 1;
  /// Token ids are random numbers in [0, vocabulary).
  int64_t vocabulary = 0;
  Tolerance tolerance{1e-4, 1e-4};
  /// Called before each step with its tokens; may be empty.
  std::function<void(int64_t tokens)> onStep;

  int64_t totalTokens() const;
  /// Number of positions that padding may affect.
  int64_t paddedPositions() const;
};

/// Tokens of a plan, step by step; equal for equal seeds.
///
/// With padding, batch row 0 has 2 hidden positions, row 1 none, row 2 a third of the prompt, and
/// so on in turn; at least one position of a prompt is visible. Hidden positions are the first ones
/// of the prompt (Left) or the last ones (Right). `paddedPositions` is the length of the prompt.
class PlannedSteps {
public:
  explicit PlannedSteps(const EquivalencePlan& steps);

  /// The next step: `tokens` tokens after `pastLength` earlier ones; `startsAnew` for a model
  /// without caches.
  DecoderStep next(int64_t tokens, int64_t pastLength, bool startsAnew);

  /// Visibility of the positions up to `position` of a batch row: 1 visible, 0 hidden. Requires a
  /// plan with padding whose steps include the position.
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
