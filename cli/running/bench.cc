// kvopt bench: prefill and decode speed of several models side by side.
#include "cli/running/bench_rounds.h"
#include "cli/running/latency_plot.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/recover.h"
#include "runtime/threads/cpu_count.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/json.h"
#include "support/output_file.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

struct BenchOptions {
  BenchPlan plan;
  std::string output;
  std::string plot;
};

llvm::Error writePlot(const std::string& path, const BenchReport& report, FileAccess& files) {
  auto svg = latencyPlot(report);
  if (!svg)
    return withFile(svg.takeError(), path);
  auto file = OutputFile::create(path, files);
  if (!file)
    return file.takeError();
  if (llvm::Error error = file->write(llvm::StringRef(*svg)))
    return error;
  return file->commit();
}

/// Fails if the plot would replace a file of a model.
llvm::Error checkFiles(const BenchOptions& options, const CommandContext& context) {
  if (!context.files().hasOutputs())
    return llvm::Error::success();
  for (const std::string& path : options.plan.models)
    if (auto model = openModel(path, context.toolkit); !model)
      llvm::consumeError(model.takeError()); // The table and checkOutputs report it.
  return context.files().checkOutputs();
}

llvm::Error check(const BenchOptions& options) {
  if (options.plan.promptTokens == 0 && options.plan.decodeTokens == 0)
    return usageError("with -p 0 and -n 0 there is nothing to measure");
  if (options.plan.decodeTokens == 0 && !options.plot.empty())
    return usageError("with -n 0 there is nothing that --plot could draw");
  return llvm::Error::success();
}

llvm::Expected<ExitCode> bench(const BenchOptions& options, const CommandContext& context) {
  if (llvm::Error error = check(options))
    return error;
  if (llvm::Error error = checkFiles(options, context))
    return error;
  BenchPlan plan = options.plan;
  if (plan.threads.empty()) {
    plan.threads = {1};
    if (unsigned cores = usableCores(); cores > 1)
      plan.threads.push_back(cores);
  }
  BenchResult result = runBench(plan, context.toolkit);
  const BenchReport& report = result.report;
  std::string format = !options.output.empty() ? options.output
                       : context.common.json() ? "json"
                                               : "md";
  if (format == "json")
    printJson(benchJson(report));
  else if (format == "csv")
    printOut(benchCsv(report));
  else
    printTable(benchMarkdown(report));
  if (report.machine.assertions)
    context.remark("this build checks assertions: a release build is faster");
  auto failures = std::count_if(report.rows.begin(), report.rows.end(),
                                [](const BenchRow& row) { return !row.failure.empty(); });
  if (failures != 0)
    context.remark(formatText("{} of {} rows could not be measured in full: see there", failures,
                              report.rows.size()));
  bool isDrawable = std::any_of(report.rows.begin(), report.rows.end(),
                                [](const BenchRow& row) { return row.decodeMs.has_value(); });
  if (!options.plot.empty() && (isDrawable || failures == 0)) {
    if (llvm::Error error = writePlot(options.plot, report, context.files()))
      return error;
    context.remark(formatText("wrote {}", options.plot));
  }
  return result.code;
}

} // namespace

void addBenchCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = addCommand(app, Command::Bench);
  BenchPlan& plan = options->plan;
  CommandOptions add(*command, context, Command::Bench);
  add.add("models", plan.models);
  add.add("--prompt", plan.promptTokens);
  add.add("--decode", plan.decodeTokens);
  add.add("--depth", plan.depths)->allow_extra_args(false);
  add.add("--repetitions", plan.repetitions);
  add.add("--threads", plan.threads)->allow_extra_args(false);
  add.add("--batch", plan.batch);
  add.add("--output", options->output);
  add.add("--plot", options->plot);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return bench(*options, context); };
  });
}

} // namespace kvopt::cli
