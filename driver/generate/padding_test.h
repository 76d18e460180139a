// Test of padding: whether a prompt of a batch of longer ones, and the token after it, have the
// scores that they have alone.
#pragma once

#include "runtime/session/session.h"
#include "runtime/session/token_feed.h"

#include "llvm/ADT/ArrayRef.h"

#include <memory>
#include <optional>
#include <vector>

namespace kvopt::driver {

/// Compares the shortest of several prompts after padding with the same prompt alone, from empty
/// caches. A model may hide padding from attention, but count positions without looking at its
/// mask, or keep padding in a state that later tokens read.
class PaddingTest {
public:
  /// A test of these prompts before the session takes them; nullopt where there is nothing to
  /// compare: prompts of one length, caches with tokens, or arithmetic whose rounding depends on
  /// all rows.
  static llvm::Expected<std::optional<PaddingTest>>
  create(const runtime::Session& session, llvm::ArrayRef<std::vector<int64_t>> prompts);

  /// Runs the shortest prompt in steps of at most `chunk` tokens. `logits` are the scores [B,S,V]
  /// of the padded prompts' last step. In the shortest prompt's row, `after` positions follow its
  /// last token. Fails if the scores of that token differ.
  llvm::Error run(const runtime::FeedOptions& options, size_t chunk, const runtime::Tensor& logits,
                  int64_t after);

  /// Runs the token that follows the prompt. `logits` are those of the padded prompts' next step.
  llvm::Error runNext(int64_t token, const runtime::Tensor& logits);

  /// The batch row of the shortest prompt.
  size_t row() const { return shortest; }

private:
  PaddingTest(std::unique_ptr<runtime::Session> copy, std::vector<int64_t> shortestPrompt,
              size_t shortestRow)
      : fork(std::move(copy)), prompt(std::move(shortestPrompt)), shortest(shortestRow) {}

  /// Compares the scores of the shortest prompt's row with those alone.
  llvm::Error compare(const runtime::Tensor& logits, int64_t after) const;

  std::unique_ptr<runtime::Session> fork;
  std::vector<int64_t> prompt;
  size_t shortest;
  runtime::FeedOptions settings;
  std::unique_ptr<runtime::TokenFeed> feed; ///< the prompt without the others
  runtime::StepResult alone;
};

} // namespace kvopt::driver
