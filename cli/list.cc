// kvopt list: passes, rules, targets, operators, kernels, reasons.
#include "cli/support/command.h"
#include "passes/pattern/reason_docs.h"
#include "runtime/simd/attention/attention_kernel.h"
#include "support/format.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;
using namespace simd;
using namespace targets;

namespace {

struct Row {
  std::string name;
  std::string text;
};

/// `ai.onnx 13 and later`
std::string kernelVersions(const Kernel& kernel) {
  llvm::StringRef domain = kernel.op.isOnnx() ? llvm::StringRef("ai.onnx") : kernel.op.domain();
  return kernel.until == INT64_MAX
             ? fmt::format("{:<14} {} and later", domain, kernel.since)
             : fmt::format("{:<14} {} to {}", domain, kernel.since, kernel.until);
}

std::vector<Row> rowsOf(const std::string& what, const Toolkit& toolkit) {
  std::vector<Row> rows;
  if (what == "passes")
    for (const PassInfo& pass : toolkit.passes.all())
      rows.push_back({pass.name, pass.summary});
  if (what == "rules")
    for (const RuleRegistry::Entry& entry : toolkit.rules.all())
      rows.push_back({entry.rule->name().str(), ruleGroupName(entry.rule->group()).str()});
  if (what == "targets")
    for (const std::unique_ptr<Target>& target : toolkit.targets.all())
      rows.push_back({target->name().str(), target->summary().str()});
  if (what == "ops")
    for (const OpDef* definition : toolkit.ops.all())
      rows.push_back({definition->name.str(), fmt::format("since {}", definition->since)});
  if (what == "kernels") {
    for (const Kernel* kernel : toolkit.kernels.all())
      rows.push_back({kernel->op.str(), kernelVersions(*kernel)});
    // Behind all attention operators; of those that take a case, the first computes it.
    for (const AttentionKernel& kernel : attentionKernels().all())
      rows.push_back(
          {fmt::format("attention/{}", kernel.name), fmt::format("{:<14} {}", "SIMD", kernel.use)});
  }
  return rows;
}

/// Reasons say more than a line: what to do, and an example.
void printReasons(const CommandContext& context) {
  OrderedJson json;
  json["schema"] = "kvopt/list/1";
  json["reasons"] = OrderedJson::array();
  std::string out;
  for (const ReasonInfo& reason : reasonTable()) {
    const ReasonDoc& doc = reasonDoc(reason.code);
    json["reasons"].push_back({{"name", reason.name},
                               {"text", reason.meaning},
                               {"remedy", doc.remedy},
                               {"example", doc.example},
                               {"hint", doc.hint}});
    out += fmt::format("{}\n  means    {}\n  do       {}\n  example  {}\n", reason.name,
                       reason.meaning, doc.remedy, doc.example);
  }
  if (context.common.json())
    printJson(json);
  else
    printOut(out);
}

struct ListOptions {
  std::string what;
  bool markdown = false;
};

llvm::Expected<ExitCode> list(const ListOptions& options, const CommandContext& context) {
  const std::string& what = options.what;
  if (options.markdown) {
    if (what != "reasons" || context.common.json())
      return usageError("--markdown is for: kvopt list reasons");
    printOut(reasonsMarkdown());
    return ExitCode::Done;
  }
  if (what == "reasons") {
    printReasons(context);
    return ExitCode::Done;
  }
  std::vector<Row> rows = rowsOf(what, context.toolkit);
  if (context.common.json()) {
    OrderedJson json;
    json["schema"] = "kvopt/list/1";
    json[what] = OrderedJson::array();
    for (const Row& row : rows)
      json[what].push_back({{"name", row.name}, {"text", row.text}});
    printJson(json);
    return ExitCode::Done;
  }
  for (const Row& row : rows)
    printOut(formatText("{:<28} {}\n", row.name, row.text));
  return ExitCode::Done;
}

} // namespace

void addListCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = app.add_subcommand("list", "What kvopt knows");
  command->add_option("what", options->what, "passes, rules, targets, ops, kernels or reasons")
      ->required()
      ->check(CLI::IsMember({"passes", "rules", "targets", "ops", "kernels", "reasons"}));
  command->add_flag("--markdown", options->markdown, "The page docs/reasons.md");
  addCommonOptions(*command, context);
  command->callback([options, &context] {
    context.action = [options, &context] { return list(*options, context); };
  });
}

} // namespace kvopt::cli
