// kvopt list: passes, rules, targets, operators, kernels, reasons.
#include "cli/command.h"

#include <CLI/CLI.hpp>

#include <fmt/format.h>

namespace kvopt {
namespace {

struct Row {
  std::string name;
  std::string text;
};

std::vector<Row> rowsOf(const std::string& what, const Registries& registries) {
  std::vector<Row> rows;
  if (what == "passes")
    for (const PassInfo& pass : registries.passes.all())
      rows.push_back({pass.name, pass.summary});
  if (what == "rules")
    for (const RuleRegistry::Entry& entry : registries.rules.all())
      rows.push_back({entry.rule->name().str(), ruleGroupName(entry.rule->group()).str()});
  if (what == "targets")
    for (const std::unique_ptr<Target>& target : registries.targets.all())
      rows.push_back({target->name().str(), target->summary().str()});
  if (what == "ops")
    for (const OpDef* definition : registries.ops.all())
      rows.push_back({definition->name.str(), fmt::format("since {}", definition->since)});
  if (what == "kernels")
    for (const Kernel* kernel : registries.kernels.all())
      rows.push_back(
          {kernel->op.str(), kernel->until == INT64_MAX
                                 ? fmt::format("since {}", kernel->since)
                                 : fmt::format("{} to {}", kernel->since, kernel->until)});
  if (what == "reasons")
    for (const ReasonInfo& reason : reasonTable())
      rows.push_back({reason.name, reason.meaning});
  return rows;
}

llvm::Expected<ExitCode> list(const std::string& what, const CommandContext& context) {
  std::vector<Row> rows = rowsOf(what, context.registries);
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
    printOut(fmt::format("{:<28} {}\n", row.name, row.text));
  return ExitCode::Done;
}

} // namespace

void addListCommand(CLI::App& app, CommandContext& context) {
  auto what = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("list", "What kvopt knows");
  command->add_option("what", *what, "passes, rules, targets, ops, kernels or reasons")
      ->required()
      ->check(CLI::IsMember({"passes", "rules", "targets", "ops", "kernels", "reasons"}));
  addCommonOptions(*command, context);
  command->callback(
      [what, &context] { context.action = [what, &context] { return list(*what, context); }; });
}

} // namespace kvopt
