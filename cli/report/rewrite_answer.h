// What the commands that write a model answer, in text: the verdict first, then what a user has to
// know, then the next command.
#pragma once

#include "cli/support/style.h"
#include "driver/options/option_table.h"
#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"

#include <string>
#include <utility>
#include <vector>

namespace kvopt::cli {

/// What the command was asked for, and what of it was done.
struct AnswerRequest {
  driver::Command command = driver::Command::Rewrite;
  std::string model;
  driver::Form form;
  /// Whether the form was chosen for the user.
  bool isChosen = false;
  /// Forms that were tried first, and why the model was refused.
  std::vector<std::pair<driver::Form, std::string>> refused;
  driver::RewrittenPaths paths;
  bool isDryRun = false;
  bool isVerbose = false;
};

/// The answer about a model that was rewritten, or that would be or could not be written.
SafeText rewriteAnswer(driver::RewrittenModel& rewritten, const driver::WeightFiles& weights,
                       const AnswerRequest& request, const Style& style);
/// The answer about a model that stays as it is.
SafeText unchangedAnswer(const driver::UnchangedModel& unchanged,
                         const driver::WeightFiles& weights, const AnswerRequest& request);
/// The attention layers that a form refuses, each reason once in a line; empty where one reason,
/// which the message has, is that of all.
std::vector<SafeText> refusedLayers(const driver::RefusedModel& refused);

/// The next command to type; empty where none is known.
std::string nextCommand(const ir::Manifest& manifest, const AnswerRequest& request);

} // namespace kvopt::cli
