// TokenFeed: feeds tokens and all other inputs of the model to a session.
#pragma once

#include "runtime/session/decoder_inputs.h"
#include "runtime/session/session.h"
#include "runtime/session/step_inputs.h"
#include "runtime/session/token_limits.h"

#include <functional>

namespace kvopt::runtime {

/// Inputs other than tokens, and an observer.
struct FeedOptions {
  /// The user's choice of values for inputs.
  std::vector<ir::InputRecipe> recipes;
  /// Inputs with fixed tensors for every step.
  std::vector<NamedTensor> computed;
  /// Inputs whose made-up contents `computed` follows from.
  std::vector<std::string> madeUp;
  /// Called after every step of the session with the number of tokens per row, the inputs and the
  /// results; an error ends the run.
  std::function<llvm::Error(int64_t tokens, llvm::ArrayRef<NamedTensor> inputs,
                            const StepResult& result)>
      onStep;
};

/// Steps of one session. Positions without tokens are hidden from all later ones. Inputs are reused
/// between steps; see StepInputs.
class TokenFeed {
public:
  /// Both arguments must outlive this object.
  TokenFeed(Session& drivenSession, const FeedOptions& settings)
      : session(drivenSession), options(settings) {}

  /// Declares padding in the next batch row of the next prompt: `padding` positions after
  /// `tokensBefore` tokens. Called once for every row, in order.
  void hidePadding(size_t padding, size_t tokensBefore = 0);
  /// Runs the tokens, the same number in each batch row. A model without caches receives the whole
  /// sequence every time. For `result`, see Session::step.
  llvm::Error run(llvm::ArrayRef<std::vector<int64_t>> tokens, StepResult& result);
  /// Inputs whose contents are made up, because nothing determines them; known after the first
  /// step. Those that other inputs were computed from come first.
  llvm::ArrayRef<std::string> madeUp() const { return madeUpInputs; }
  /// Number of tokens so far, including those at hidden positions.
  int64_t length() const;

private:
  llvm::Error planInputs();
  void takeTokens(llvm::ArrayRef<std::vector<int64_t>> tokens);
  /// Calls FeedOptions::onStep.
  llvm::Error tell(const StepResult& result) const;

  Session& session;
  const FeedOptions& options;
  HiddenPositions hidden;
  size_t paddedRows = 0; ///< number of calls of `hidePadding`

  /// Reused by every step.
  DecoderStep step; ///< for a model without caches, all tokens so far
  std::optional<StepInputs> inputs;
  std::vector<NamedView> views;
  std::optional<TokenLimits> limits;
  std::vector<std::string> madeUpInputs;
};

} // namespace kvopt::runtime
