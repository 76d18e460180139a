// kvopt bench: prefill and decode speed of several models side by side.
#include "cli/bench/bench_rounds.h"
#include "cli/report/latency_plot.h"
#include "cli/support/command.h"
#include "cli/support/progress.h"
#include "driver/recover.h"
#include "runtime/threads/cpu_count.h"
#include "support/diagnostic.h"
#include "support/format.h"
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

/// Refuses a plot that would replace a file of a model.
llvm::Error checkFiles(const BenchOptions& options, const CommandContext& context) {
  if (!context.files().hasOutputs())
    return llvm::Error::success();
  for (const std::string& path : options.plan.models)
    if (auto model = openModel(path, context.toolkit); !model)
      llvm::consumeError(model.takeError()); // The table reports it; a refusal is remembered.
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
  BenchResult result;
  {
    Progress progress(context.common);
    result = runBench(plan, context.toolkit, [&](const std::string& text) { progress.show(text); });
  }
  const BenchReport& report = result.report;
  std::string format = !options.output.empty() ? options.output
                       : context.common.json() ? "json"
                                               : "md";
  if (format == "json")
    printJson(benchJson(report));
  else
    printOut(format == "csv" ? benchCsv(report) : benchMarkdown(report));
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
  CLI::App* command =
      app.add_subcommand("bench", "Measure models side by side: prefill, decode, read floor");
  command->footer(
      "Models take turns a few steps at a time, so that whatever disturbs the machine disturbs "
      "all\n"
      "alike; compare ratios, not times. The read floor is the time to read the weights and valid\n"
      "cache rows of a step once, measured in the same rounds.\n\n"
      "Examples:\n"
      "  kvopt bench decoder.onnx fused.onnx\n"
      "  kvopt bench decoder.onnx fused.onnx -p 0 -n 64 -d 0,4096,16384 -t 1 --plot latency.svg\n"
      "  kvopt bench fused.onnx -o csv > fused.csv");
  BenchPlan& plan = options->plan;
  addModelPath(*command, context, "models", plan.models, "ONNX files; ratios are to the first")
      ->required();
  command->add_option("-p,--prompt", plan.promptTokens, "Tokens of the measured prefill; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  command
      ->add_option("-n,--decode", plan.decodeTokens,
                   "Decode steps of a repetition, from each depth on; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  command->add_option("-d,--depth", plan.depths, "Tokens in the cache before the first step")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  command->add_option("-r,--repetitions", plan.repetitions, "Repetitions")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("-t,--threads", plan.threads,
                   "Numbers of threads; unless given, 1 and one a physical core")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1u, 1024u));
  command->add_option("-b,--batch", plan.batch, "Batch size")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "md, csv or json, on stdout")
      ->check(CLI::IsMember({"md", "csv", "json"}));
  addOutputPath(*command, context, "--plot", options->plot,
                "SVG file to draw latency against context into, with the read floor");
  addCommonOptions(*command, context);
  command->callback([options, &context] {
    context.action = [options, &context] { return bench(*options, context); };
  });
}

} // namespace kvopt::cli
