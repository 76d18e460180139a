// Draft: a session that guesses the next tokens of another session.
#pragma once

#include "driver/generate/generation.h"

namespace kvopt::driver {

/// The guesses of DraftOptions::session for one sequence.
class Draft {
public:
  /// The settings must outlive the draft.
  Draft(const DraftOptions& settings, const runtime::SamplingOptions& sampling)
      : session(*settings.session), feed(*settings.session, settings.feed), chooser(sampling) {}

  /// Guesses at most `count` tokens that follow `sequence`; fewer if the caches are full. The
  /// session may already have run a prefix of `sequence`. The tokens that it runs stay in its
  /// caches.
  llvm::Expected<std::vector<int64_t>> guess(llvm::ArrayRef<int64_t> sequence, int64_t count);
  /// Forgets all tokens after the first `tokens`.
  llvm::Error goBack(int64_t tokens);
  /// Number of scores per token; 0 before the first guess.
  int64_t vocabulary() const { return scoreCount; }

private:
  /// The token that follows `sequence`; nullopt if the caches are full.
  llvm::Expected<std::optional<int64_t>> next(llvm::ArrayRef<int64_t> sequence);

  runtime::Session& session;
  runtime::TokenFeed feed;
  runtime::StepResult result; ///< results of the latest step
  runtime::TokenChooser chooser;
  int64_t scoreCount = 0;
};

/// Fails with a usage error unless the session's caches can be cropped to any token. The message
/// calls the session `whose`.
llvm::Error checkGoesBack(const runtime::Session& session, llvm::StringRef whose);

} // namespace kvopt::driver
