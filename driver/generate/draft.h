// Draft: a session that guesses the next tokens of another one.
#pragma once

#include "driver/generate/generation.h"

namespace kvopt::driver {

/// The guesses of DraftOptions::session for one sequence.
class Draft {
public:
  /// The settings must outlive the draft.
  Draft(const DraftOptions& settings, const runtime::SamplingOptions& sampling)
      : session(*settings.session), feed(*settings.session, settings.feed), chooser(sampling) {}

  /// At most `count` tokens that may follow `sequence`, of which the session may have seen a first
  /// part already; fewer where its caches are full. What it sees for that stays in its caches.
  llvm::Expected<std::vector<int64_t>> guess(llvm::ArrayRef<int64_t> sequence, int64_t count);
  /// Forgets what it saw behind the first `tokens` tokens.
  llvm::Error goBack(int64_t tokens);
  /// How many scores a token has; 0 before the first guess.
  int64_t vocabulary() const { return scoreCount; }

private:
  /// The token behind all of `sequence`, or nullopt where there is no room.
  llvm::Expected<std::optional<int64_t>> next(llvm::ArrayRef<int64_t> sequence);

  runtime::Session& session;
  runtime::TokenFeed feed;
  runtime::StepResult result; ///< of the latest step
  runtime::TokenChooser chooser;
  int64_t scoreCount = 0;
};

/// A usage error where the session's caches cannot go back to any token, named after `whose` it is.
llvm::Error checkGoesBack(const runtime::Session& session, llvm::StringRef whose);

} // namespace kvopt::driver
