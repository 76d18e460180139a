// What options say of a rewrite, and what they mean.
#pragma once

#include "driver/forms/form_words.h"
#include "driver/options/option_table.h"
#include "driver/options/token_file.h"
#include "driver/rewrite/request.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// The options of the commands that write a model, without those that name files it is written to.
struct RewriteWords {
  /// What options say as it is. `read` adds the rest, but for the form.
  RewriteRequest request;
  FormWords form;
  std::string capacity = "dynamic";
  std::string layers;              ///< as `0-3,7`; empty: all
  std::vector<std::string> inputs; ///< `NAME=VALUE` for inputs that nothing is known of
  TokenFiles calibration;

  /// Completes the request: reads numbers, recipes and the file of the calibration.
  llvm::Error read();
};

/// What `command` does to a model before it is rewritten.
void setCommand(RewriteWords& words, Command command);

/// The forms that `command` tries, in their order. `genai` leaves out those that ONNX Runtime GenAI
/// does not drive.
llvm::Expected<std::vector<Form>> formsOf(const RewriteWords& words, Command command, bool genai);

/// Whether the form was chosen for the user.
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

/// Adds all options of the command that are in `words`.
template <class Options>
void addWritingOptions(Options& add, Command command, RewriteWords& words) {
  RewriteRequest& request = words.request;
  addFormOptions(add, words.form);
  add.add("--capacity", words.capacity);
  if (command == Command::Rewrite)
    addRewriteOptions(add, words);
  add.add("--verify", request.verification,
          {{"off", VerificationExtent::Off},
           {"quick", VerificationExtent::Quick},
           {"full", VerificationExtent::Full}});
  add.add("--input", words.inputs);
  add.add("--disable", request.disabled);
  add.add("--step-budget", request.matcher.stepBudget);
}

} // namespace kvopt::driver
