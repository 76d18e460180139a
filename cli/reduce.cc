// kvopt reduce: a model comes down to the part for which a command gives the same exit code.
#include "driver/reduce/reduce.h"
#include "cli/report/byte_text.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/recover.h"
#include "driver/reduce/reduce_json.h"
#include "support/format.h"
#include "support/json.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;

namespace {

struct ReduceOptions {
  ReduceRequest request;
  uint64_t seconds = 60;
};

SafeText countLine(const char* what, size_t before, size_t after) {
  return formatText("  {:<13} {:>9} -> {}\n", what, before, after);
}

SafeText reduceAnswer(const ReduceRequest& request, const ReducedModel& reduced) {
  SafeText text =
      formatText("{}: {} of {} nodes; the command still exits with {}\n", request.output,
                 reduced.after.nodes, reduced.before.nodes, reduced.exitCode);
  text += formatText("  {} candidates in {:.1f} s\n", reduced.candidates(), reduced.seconds);
  text += countLine("inputs", reduced.before.inputs, reduced.after.inputs);
  text += countLine("outputs", reduced.before.outputs, reduced.after.outputs);
  text += countLine("initializers", reduced.before.initializers, reduced.after.initializers);
  if (reduced.before.functions != 0)
    text += countLine("functions", reduced.before.functions, reduced.after.functions);
  text += formatText("  {:<13} {:>9} -> {}\n", "file", byteText(reduced.before.bytes),
                     byteText(reduced.after.bytes));
  if (reduced.hasData)
    text += formatText("  external data is in {}.data\n", request.output);
  if (reduced.hasManifest)
    text += "  the command needs the manifest next to the model\n";
  return text;
}

llvm::Expected<ExitCode> reduceModel(const ReduceOptions& options, const CommandContext& context) {
  // Opening the model registers its files: the output may not replace them.
  if (auto model = openModel(options.request.model, context.toolkit); !model)
    return model.takeError();
  if (llvm::Error error = context.files().checkOutputs())
    return error;
  auto reduced = reduce(options.request, context.toolkit);
  if (!reduced)
    return reduced.takeError();
  for (const ReductionStep& step : reduced->steps)
    context.detail(formatText("kvopt: {:<16} {:>6} candidates, {:>5} accepted", step.name,
                              step.candidates, step.accepted));
  if (context.common.json())
    printJson(reduceJson(options.request, *reduced));
  else
    printOut(reduceAnswer(options.request, *reduced));
  return ExitCode::Done;
}

} // namespace

void addReduceCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ReduceOptions>();
  CLI::App* command = addCommand(app, Command::Reduce);
  CommandOptions add(*command, context, Command::Reduce);
  add.add("model", options->request.model);
  add.add("--while", options->request.command)->required();
  add.add("--output", options->request.output)->required();
  add.add("--timeout", options->seconds);
  add.add("--anonymize", options->request.isAnonymous);
  add.add("--external-data", options->request.linksFiles, {{"copy", false}, {"link", true}});
  add.addCommon();
  command->callback([options, &context] {
    options->request.limit = std::chrono::seconds(options->seconds);
    context.action = [options, &context] { return reduceModel(*options, context); };
  });
}

} // namespace kvopt::cli
