// kvopt opt: a driver for developers. Runs a pipeline on text or ONNX, and prints text or writes
// ONNX (-o).
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/recover.h"
#include "driver/rewrite/data_files.h"
#include "ir/onnx/import.h"
#include "ir/onnx/model_files.h"
#include "ir/text/printer.h"
#include "ir/text/reader.h"
#include "ir/verify/model_gate.h"
#include "support/format.h"
#include "support/mapped_file.h"
#include "support/string_ends.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

struct OptOptions {
  std::string input;
  std::string pipeline;
  std::string output;
  std::string reproducer;
  std::vector<std::string> printBefore;
  std::vector<std::string> printAfter;
  std::vector<std::string> disabled;
  bool explain = false;
  bool timing = false;
  bool statistics = false;
  bool noVerify = false;
  bool types = false;
  std::string elements = "256";
  WeightPlacement placement = WeightPlacement::Keep;
  MatcherOptions matcher;
};

llvm::Expected<std::unique_ptr<Model>> readModel(const std::string& path, const Toolkit& toolkit) {
  if (endsWith(path, ".onnx"))
    return importModel(path, toolkit.ops, toolkit.limits);
  auto file = MappedFile::open(path);
  if (!file)
    return file.takeError();
  auto bytes = (*file)->bytes();
  llvm::StringRef text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto model = readText(text, toolkit.ops, path);
  if (!model)
    return model.takeError();
  if (llvm::Error error = withFile(admit(**model, toolkit.limits), path))
    return error;
  return model;
}

void printNearMisses(const NearMissList& misses) {
  for (const NearMiss& miss : misses.ranked())
    printOut(formatText("near-miss {} at '{}' ({} nodes): {}\n", miss.rule, miss.root, miss.matched,
                        miss.failure.str()));
}

/// Parses the value of --elements.
llvm::Expected<int64_t> mostElements(const std::string& text) {
  int64_t number = INT64_MAX;
  if (text != "all" && (llvm::StringRef(text).getAsInteger(10, number) || number < 0))
    return usageError("--elements: '{}' is neither a number nor 'all'", text);
  return number;
}

llvm::Expected<ExitCode> opt(const OptOptions& options, const CommandContext& context) {
  auto elements = mostElements(options.elements);
  if (!elements)
    return elements.takeError();
  auto model = readModel(options.input, context.toolkit);
  if (!model)
    return model.takeError();

  if (llvm::Error error = registerFiles(**model, context.files()))
    return error;
  if (llvm::Error error = context.files().checkOutputs())
    return error;

  PassManagerOptions settings;
  settings.verifyEach = !options.noVerify;
  settings.printBefore = options.printBefore;
  settings.printAfter = options.printAfter;
  settings.reproducerPath = options.reproducer;
  settings.files = &context.files();
  settings.print = [](const std::string& header, const std::string& text) {
    printErr(formatText("// ----- {} -----\n", header) + text);
  };
  NearMissList misses;
  PassContext passContext(context.toolkit.rules, context.toolkit.targets);
  passContext.nearMisses = options.explain ? &misses : nullptr;
  passContext.matcher = options.matcher;
  if (llvm::Error error = disable(options.disabled, context.toolkit, passContext, settings))
    return error;
  PassManager manager(context.toolkit.passes, settings);
  if (llvm::Error error = manager.addPipeline(options.pipeline))
    return error;
  if (llvm::Error error = manager.run(**model, passContext))
    return withFile(std::move(error), options.input);

  if (options.output.empty()) {
    PrintOptions print;
    print.types = options.types;
    print.maxTensorElements = *elements;
    printOut(printText(**model, print));
  } else if (llvm::Error error = exportWithData(**model, options.output, options.placement,
                                                context.files(), context.toolkit.progress)) {
    return error;
  }
  if (options.explain)
    printNearMisses(misses);
  if (options.timing)
    for (const PassTiming& timing : manager.timings())
      context.remark(formatText("{:<28} {:8.2f} ms{}", timing.pass, timing.milliseconds,
                                timing.changed ? "" : "  (no change)"));
  if (options.statistics)
    for (const auto& [pass, counters] : passContext.statistics)
      for (const auto& [counter, count] : counters)
        context.remark(formatText("{:<28} {:<28} {}", pass, counter, count));
  return ExitCode::Done;
}

} // namespace

void addOptCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<OptOptions>();
  CLI::App* command = addCommand(app, Command::Opt);
  CommandOptions add(*command, context, Command::Opt);
  add.add("model", options->input);
  add.add("--pipeline", options->pipeline);
  add.add("--output", options->output);
  add.add("--print-ir-before", options->printBefore);
  add.add("--print-ir-after", options->printAfter);
  add.add("--disable", options->disabled);
  add.add("--step-budget", options->matcher.stepBudget);
  add.add("--reproducer", options->reproducer);
  add.add("--explain", options->explain);
  add.add("--timing", options->timing);
  add.add("--statistics", options->statistics);
  add.add("--no-verify", options->noVerify);
  add.add("--types", options->types);
  add.add("--elements", options->elements);
  addPlacementOption(add, options->placement);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return opt(*options, context); };
  });
}

} // namespace kvopt::cli
