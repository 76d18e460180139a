// TextReader: runs a model over a text, window by window.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/input_recipe.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "runtime/session/token_feed.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <memory>
#include <vector>

namespace kvopt {
class ProgressListener;
} // namespace kvopt
namespace kvopt::driver {

/// A text in windows of `context` tokens. Each window starts from empty caches.
struct TextPlan {
  std::vector<int64_t> tokens;
  int64_t context = 512;
  /// Largest number of tokens of a step; smaller if a model accepts fewer.
  int64_t chunk = 128;
  std::vector<ir::InputRecipe> recipes;
};

/// Calls `read` for each window of the plan's text, in order, until it fails. The progress has the
/// name `words`.
llvm::Error forEachWindow(const TextPlan& plan, ProgressListener* listener, const char* words,
                          llvm::function_ref<llvm::Error(llvm::ArrayRef<int64_t> window)> read);

/// A usage error if the model's tokens are known not to be bytes, so that a text is not a list of
/// them. `option` gives the text, and `instead` gives token numbers.
llvm::Error checkByteTokens(const ir::Graph& graph, llvm::ArrayRef<ir::ManifestInput> described,
                            const char* option, const char* instead);

/// Number of tokens and batch rows of a step.
struct TextStep {
  int64_t tokens;
  int64_t batch;
  bool isFixed; ///< whether no step may have fewer tokens
};

/// The step of a model for `wanted` tokens of one batch row.
TextStep textStepOf(const ir::Model& model, const ir::Manifest& manifest, int64_t wanted);

/// Runs one model over the windows of a text.
class TextReader {
public:
  /// Fails for a model that attends to an encoder's results.
  static llvm::Expected<TextReader> open(const ir::Model& model, const ir::Manifest& manifest,
                                         int64_t batch, const TextPlan& plan, unsigned threads,
                                         const Toolkit& toolkit);

  /// Empties the caches.
  llvm::Error startWindow();
  /// Runs a step with the same tokens in every batch row.
  llvm::Expected<runtime::StepResult> step(llvm::ArrayRef<int64_t> tokens);
  /// Number of tokens with scores in a step of `tokens` tokens, and the size of the vocabulary.
  /// Call `startWindow` afterwards.
  llvm::Expected<std::pair<int64_t, int64_t>> scoresOf(int64_t tokens);

  const runtime::Session& state() const { return *session; }

private:
  TextReader(std::unique_ptr<runtime::Session> opened, const TextPlan& plan);

  std::unique_ptr<runtime::Session> session;
  std::unique_ptr<runtime::FeedOptions> settings;
  std::unique_ptr<runtime::TokenFeed> feed;
};

} // namespace kvopt::driver
