// Feeding a text to a model, window by window.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "runtime/session/input_recipe.h"
#include "runtime/session/token_feed.h"

#include <memory>
#include <vector>

namespace kvopt::driver {

/// A text, and how it is fed: in windows of `context` tokens, each from empty caches.
struct TextPlan {
  std::vector<int64_t> tokens;
  int64_t context = 512;
  /// Most tokens of a step; fewer where a model takes fewer.
  int64_t chunk = 128;
  std::vector<runtime::InputRecipe> recipes;
};

/// How many tokens a step has, and how many batch rows it is given.
struct TextStep {
  int64_t tokens;
  int64_t batch;
  bool isFixed; ///< no step may have fewer tokens
};

/// Those of a model that would be given `wanted` tokens for one batch row.
TextStep textStepOf(const ir::Model& model, const ir::Manifest& manifest, int64_t wanted);

/// Feeds the windows of a text to one model.
class TextReader {
public:
  /// Fails for a model that attends to an encoder's results.
  static llvm::Expected<TextReader> open(const ir::Model& model, const ir::Manifest& manifest,
                                         int64_t batch, const TextPlan& plan, unsigned threads,
                                         const Toolkit& toolkit);

  /// Empties the caches.
  llvm::Error startWindow();
  /// The same tokens in every batch row.
  llvm::Expected<runtime::StepResult> step(llvm::ArrayRef<int64_t> tokens);
  /// Tokens that a step of so many has scores for, and the vocabulary. A window must be started
  /// next.
  llvm::Expected<std::pair<int64_t, int64_t>> scoresOf(int64_t tokens);

  const runtime::Session& state() const { return *session; }

private:
  TextReader(std::unique_ptr<runtime::Session> opened, const TextPlan& plan);

  std::unique_ptr<runtime::Session> session;
  std::unique_ptr<runtime::FeedOptions> settings;
  std::unique_ptr<runtime::TokenFeed> feed;
};

} // namespace kvopt::driver
