// Answers of the commands that write a model, as text: first the verdict, then notes for the user,
// then the next command.
#pragma once

#include "cli/support/style.h"
#include "driver/options/option_table.h"
#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"

#include <string>
#include <utility>
#include <vector>

namespace kvopt::cli {

/// The request to a command, and the steps of it that were done.
struct AnswerRequest {
  driver::Command command = driver::Command::Rewrite;
  std::string model;
  driver::Form form;
  /// Whether kvopt chose the form.
  bool isChosen = false;
  /// Forms that were tried first, and the reasons that they refused the model.
  std::vector<std::pair<driver::Form, std::string>> refused;
  driver::RewrittenPaths paths;
  bool isDryRun = false;
  bool isVerbose = false;
  bool canRun = true; ///< whether the program has the commands that run models
};

/// The answer for a rewritten model, whether it is written, would be written, or must not be
/// written.
SafeText rewriteAnswer(driver::RewrittenModel& rewritten, const driver::WeightFiles& weights,
                       const AnswerRequest& request, const Style& style);
/// The answer for a model that stays as it is.
SafeText unchangedAnswer(const driver::UnchangedModel& unchanged,
                         const driver::WeightFiles& weights, const AnswerRequest& request);
/// The attention layers that a form refuses, with one line for each reason; empty if there is only
/// one reason, which the message already contains.
std::vector<SafeText> refusedLayers(const driver::RefusedModel& refused);

/// The next command to type; empty if none is known.
std::string nextCommand(const ir::Manifest& manifest, const AnswerRequest& request);

} // namespace kvopt::cli
