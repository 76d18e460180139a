// VerifyWords: the options of a comparison of two models, and the plan that they describe.
#pragma once

#include "driver/options/token_file.h"
#include "driver/verify/verification.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// The options of `verify` that determine the runs of two models.
struct VerifyWords {
  /// Sizes that the user requested; all nullopt: the default runs.
  std::optional<int64_t> prompt;
  std::optional<std::vector<int64_t>> chunks;
  std::optional<int64_t> steps;
  std::optional<int64_t> batch;
  std::optional<runtime::Padding> padding;
  std::optional<int64_t> depth;
  uint64_t seed = 1;
  std::vector<std::string> inputs; ///< `NAME=VALUE` for inputs about which nothing is known
  std::vector<std::string> states; ///< `NAME=VALUE` for contents before the first step
  std::optional<double> atol;
  std::optional<double> rtol;
  unsigned threads = 0;
  /// Recorded steps, or data sets in ONNX's format, in place of a second model; empty: none.
  std::string reference;
  /// A text whose likelihoods are compared, too.
  TokenFiles text;
  int64_t context = 512; ///< number of tokens per window of the text

  bool isOneRun() const { return prompt || chunks || steps || batch || padding; }
  /// The default runs, or one run as the user describes it, without tolerance and recipes.
  VerificationPlan plan() const;
  /// The default tolerance between the models, or the user's.
  runtime::Tolerance tolerance(const PreparedModel& first, const PreparedModel& second) const;
  /// Fails with a usage error unless `models` models, and the options that exclude each other, are
  /// a comparison.
  llvm::Error checkModels(size_t models) const;
  /// The plan for two models. Fails with a usage error for an invalid recipe.
  llvm::Expected<VerificationPlan> planFor(const PreparedModel& first,
                                           const PreparedModel& second) const;
};

/// Adds the options that describe one run.
template <class Options> void addRunOptions(Options& add, VerifyWords& words) {
  using runtime::Padding;
  add.add("--prompt", words.prompt);
  add.add("--chunks", words.chunks);
  add.add("--steps", words.steps);
  add.add("--batch", words.batch);
  add.add("--pad", words.padding,
          {{"left", Padding::Left}, {"right", Padding::Right}, {"none", Padding::None}});
}

/// Adds the options that name a recording or a text.
template <class Options> void addVerifyFiles(Options& add, VerifyWords& words) {
  add.addInput("--reference", words.reference, "the recording");
  add.addInput("--text-file", words.text.text, "the text");
  add.addInput("--token-file", words.text.numbers, "the tokens");
  add.add("--context", words.context);
}

/// Adds all options that describe runs and their comparison. `Options` adds variables to the
/// command line's parser or to an OptionReader.
template <class Options> void addVerifyOptions(Options& add, VerifyWords& words) {
  addRunOptions(add, words);
  add.add("--depth", words.depth);
  add.add("--input", words.inputs);
  add.add("--state", words.states);
  add.add("--atol", words.atol);
  add.add("--rtol", words.rtol);
  add.add("--seed", words.seed);
  add.add("--threads", words.threads);
}

} // namespace kvopt::driver
