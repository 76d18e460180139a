// TokenFeed: brings tokens into a session, with all that its model reads besides them.
#pragma once

#include "runtime/session/decoder_inputs.h"
#include "runtime/session/session.h"
#include "runtime/session/step_inputs.h"

#include <functional>

namespace kvopt::runtime {

/// What inputs are fed beside tokens, and who is told.
struct FeedOptions {
  /// What the user says that inputs are to be fed.
  std::vector<InputRecipe> recipes;
  /// Inputs that are fed these tensors at every step.
  std::vector<NamedTensor> computed;
  /// Told of every step of the session, of how many tokens a row it was, what it was fed and gave;
  /// an error ends the run.
  std::function<llvm::Error(int64_t tokens, llvm::ArrayRef<NamedTensor> inputs,
                            const StepResult& result)>
      onStep;
};

/// Steps of one session. Positions that hold no token are hidden from all that come later. Inputs
/// are kept from step to step: see StepInputs.
class TokenFeed {
public:
  /// Both must outlive the feed.
  TokenFeed(Session& drivenSession, const FeedOptions& settings)
      : session(drivenSession), options(settings) {}

  /// The next batch row of the prompt that comes next has so much padding, behind so many of its
  /// tokens. For every row, in order.
  void hidePadding(size_t padding, size_t tokensBefore = 0);
  /// Runs as many tokens in each batch row. A model without caches is given the whole sequence
  /// every time. `result` is as in Session::step.
  llvm::Error run(llvm::ArrayRef<std::vector<int64_t>> tokens, StepResult& result);
  /// Tokens so far, those of hidden positions included.
  int64_t length() const;

private:
  llvm::Error planInputs();
  void takeTokens(llvm::ArrayRef<std::vector<int64_t>> tokens);
  /// Calls FeedOptions::onStep.
  llvm::Error tell(const StepResult& result) const;

  Session& session;
  const FeedOptions& options;
  HiddenPositions hidden;
  size_t paddedRows = 0; ///< how many were told to `hidePadding`

  /// What every step uses again.
  DecoderStep step; ///< for a model without caches, all tokens so far
  std::optional<StepInputs> inputs;
  std::vector<NamedView> views;
};

} // namespace kvopt::runtime
