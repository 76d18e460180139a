// RewriteWords: the options of a rewrite, and the request that they describe.
#pragma once

#include "driver/forms/form_words.h"
#include "driver/options/option_table.h"
#include "driver/options/token_file.h"
#include "driver/rewrite/request.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// The options of the commands that write a model, except those that name output files.
struct RewriteWords {
  /// The request, as far as options set it directly. `read` adds the rest, except the form.
  RewriteRequest request;
  FormWords form;
  std::string capacity = "dynamic";
  std::string layers;              ///< as `0-3,7`; empty: all
  std::vector<std::string> inputs; ///< `NAME=VALUE` for inputs about which nothing is known
  std::vector<std::string> states; ///< `NAME=VALUE` for contents before the first step
  TokenFiles calibration;

  /// Completes the request: parses numbers and recipes, and reads the calibration file.
  llvm::Error read();
};

/// Sets the changes that `command` makes to a model before it is rewritten.
void setCommand(RewriteWords& words, Command command);

/// The forms that `command` tries, in order. With `genai`, forms that ONNX Runtime GenAI does not
/// drive are left out.
llvm::Expected<std::vector<Form>> formsOf(const RewriteWords& words, Command command, bool genai);

/// Whether kvopt chooses the form, rather than the user.
bool isFormChosen(const RewriteWords& words, Command command);

/// Adds the options that only `rewrite` has.
template <class Options> void addRewriteOptions(Options& add, RewriteWords& words) {
  RewriteRequest& request = words.request;
  add.add("--require", request.require,
          {{"all", LayerRequirement::All}, {"any", LayerRequirement::Any}});
  add.add("--layers", words.layers);
  add.add("--hidden-rows", request.hiddenRows,
          {{"exact", HiddenRows::Exact}, {"undefined", HiddenRows::Undefined}});
  add.add("--padding", request.padding, {{"any", PaddedRows::Any}, {"none", PaddedRows::None}});
  add.addInput("--calibration-text", words.calibration.text, "the text");
  add.addInput("--calibration-tokens", words.calibration.numbers, "the tokens");
  add.add("--calibration-context", request.calibrationContext);
  add.add("--tile-state", request.tileState,
          {{"float32", ir::ElementType::Float}, {"float16", ir::ElementType::Float16}});
  add.add("--one-branch", request.oneBranch);
}

/// Adds all options of the command whose values are in `words`.
template <class Options>
void addWritingOptions(Options& add, Command command, RewriteWords& words) {
  RewriteRequest& request = words.request;
  addFormOptions(add, words.form);
  add.add("--capacity", words.capacity);
  if (command == Command::Rewrite)
    addRewriteOptions(add, words);
  add.add("--verify", request.verification,
          {{"auto", VerificationExtent::Auto},
           {"off", VerificationExtent::Off},
           {"check", VerificationExtent::Check},
           {"quick", VerificationExtent::Quick},
           {"full", VerificationExtent::Full}});
  add.add("--input", words.inputs);
  add.add("--state", words.states);
  add.add("--disable", request.disabled);
  add.add("--step-budget", request.matcher.stepBudget);
}

} // namespace kvopt::driver
