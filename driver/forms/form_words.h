// Parsing of the options with which a user selects a form.
#pragma once

#include "driver/forms/form.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Values of the options that select a form; empty if an option is not given.
struct FormWords {
  std::string to;         ///< an engine or a preset: `ort`, `blocks:64`
  std::string cache;      ///< `ring`, `blocks:64`
  std::string rows;       ///< `int8`
  std::string cacheDtype; ///< an older name of `rows`
  std::string split;      ///< `tiles:16`
  bool latent = false;
  std::optional<int64_t> opset;

  /// Whether any option is given.
  bool chooseForm() const {
    return latent || opset || !to.empty() || !cache.empty() || !rows.empty() ||
           !cacheDtype.empty() || !split.empty();
  }
};

/// Adds `--to` and the other options that choose a form, and `--cache-dtype`, the older name of
/// `--rows`. `Options` adds variables to the command line's parser or to an OptionReader.
template <class Options> void addFormOptions(Options& add, FormWords& words) {
  add.add("--to", words.to);
  add.add("--cache", words.cache);
  add.add("--rows", words.rows);
  add.add("--cache-dtype", words.cacheDtype);
  add.add("--latent", words.latent);
  add.add("--split", words.split);
  add.add("--opset", words.opset);
}

/// The forms that the words allow, in the order in which they are tried. If the words choose an
/// engine, there is one form. Otherwise there is one for ONNX Runtime and those for ONNX's own
/// operators, in buffers and growing, as far as these engines have such a form, or else one for the
/// first other engine that has it. Fails for words that contradict each other: the message names
/// two of them and the possible alternatives.
llvm::Expected<std::vector<Form>> chooseForms(const FormWords& words);

/// The form that the words select, for commands with a default engine.
llvm::Expected<Form> chooseForm(FormWords words, const char* defaultEngine);

} // namespace kvopt::driver
