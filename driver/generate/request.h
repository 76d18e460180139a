// GenerateRequest: the tokens to generate, the models that generate them, and the files of their
// caches.
#pragma once

#include "driver/generate/generation.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// The sampling options that a user gives.
struct SamplingWords {
  std::optional<double> temperature;
  std::optional<int64_t> topK;
  std::optional<double> topP;
  std::optional<uint64_t> seed;

  /// Without any option, the most likely token is selected. If options other than the temperature
  /// are given, the temperature is 1.
  runtime::SamplingOptions options() const {
    const bool isRandom = topK || topP || seed;
    return {temperature.value_or(isRandom ? 1 : 0), topK.value_or(0), topP.value_or(1),
            seed.value_or(0)};
  }
};

/// A model that generates, or one that drafts for it.
struct GeneratingModel {
  std::string path;
  runtime::SessionOptions::Mode mode = runtime::SessionOptions::Mode::AsManifest;
  /// Capacity of the caches in tokens; 0: as required.
  int64_t capacity = 0;
  unsigned threads = 0;
  int64_t foldedConstantsLimit = -1;
  /// File of a cache to continue from, and the number of its tokens to keep; empty: none.
  std::string load;
  std::optional<int64_t> crop;
};

struct GenerateRequest {
  GeneratingModel model;
  /// The model that guesses tokens; unused if it has no path.
  GeneratingModel draft;
  int64_t draftTokens = 4; ///< maximum number of guesses before each step of the model
  std::vector<std::vector<int64_t>> prompts; ///< one per batch row
  /// Values that the user chose for inputs of either model or of the first step.
  std::vector<ir::InputRecipe> recipes;
  /// Steps, sampling, and stop conditions. Decoding sets drafts and feeds.
  GenerationOptions options;
};

} // namespace kvopt::driver
