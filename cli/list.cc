// kvopt list: passes, rules, targets, engines, operators, kernels, reasons, commands, options, and
// keys of manifests.
#include "cli/report/operator_page.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/terminal.h"
#include "cli/support/wrapped_text.h"
#include "driver/engines/engine_facts.h"
#include "driver/forms/form_table.h"
#include "driver/options/command_table.h"
#include "ir/manifest/manifest_reference.h"
#include "passes/pattern/reason_docs.h"
#include "support/format.h"
#include "support/json.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

struct Row {
  std::string name;
  std::string text;
};

std::vector<Row> rowsOf(const std::string& what, const Toolkit& toolkit) {
  std::vector<Row> rows;
  if (what == "passes")
    for (const PassInfo& pass : toolkit.passes.all())
      rows.push_back({pass.name, pass.summary});
  if (what == "rules")
    for (const RuleRegistry::Entry& entry : toolkit.rules.all())
      rows.push_back({entry.rule->name().str(), ruleGroupName(entry.rule->group()).str()});
  if (what == "ops")
    for (const OpDef* definition : toolkit.ops.all())
      rows.push_back({definition->name.str(), formatted("since {}", definition->since)});
  if (what == "manifest")
    for (const ManifestKey& key : manifestKeys())
      rows.push_back({key.path, key.field->sentence});
  if (what == "kernels")
    for (const auto& [name, text] : toolkit.runner->kernelTexts())
      rows.push_back({name, text});
  return rows;
}

/// Prints the reasons, each with advice and an example.
void printReasons(const CommandContext& context) {
  OrderedJson json;
  json["schema"] = "kvopt/list/1";
  json["reasons"] = OrderedJson::array();
  const size_t columns = terminalColumns(stdout).value_or(SIZE_MAX);
  std::string out;
  for (const ReasonInfo& reason : reasonTable()) {
    const ReasonDoc& doc = reasonDoc(reason.code);
    json["reasons"].push_back({{"name", reason.name},
                               {"text", reason.meaning},
                               {"remedy", doc.remedy},
                               {"example", doc.example},
                               {"hint", doc.hint}});
    constexpr size_t start = 11;
    out += formatted("{}\n  means    {}\n  do       {}\n  example  {}\n", reason.name,
                     wrappedIfLong(reason.meaning, columns, start),
                     wrappedIfLong(doc.remedy, columns, start),
                     wrappedIfLong(doc.example, columns, start));
  }
  if (context.common.json())
    printJson(json);
  else
    printOut(out);
}

OrderedJson cellJson(const FormRow& row, RowKind rows, bool isLatent) {
  const FormCell& cell = (isLatent ? row.latent : row.cells)[static_cast<size_t>(rows)];
  OrderedJson json;
  json["to"] = wordOf(row.engine);
  json["cache"] = wordOf(row.cache);
  json["split"] = row.split == SplitKind::None ? OrderedJson(nullptr) : wordOf(row.split);
  json["rows"] = wordOf(rows);
  json["latent"] = isLatent;
  json["target"] = cell.target ? OrderedJson(cell.target) : OrderedJson(nullptr);
  json["refusal"] = cell.refusal ? OrderedJson(cell.refusal) : OrderedJson(nullptr);
  return json;
}

/// The table of forms, cell by cell.
OrderedJson formsJson() {
  OrderedJson json = OrderedJson::array();
  for (const FormRow& row : formTable())
    for (bool isLatent : {false, true})
      for (size_t rows = 0; rows < rowKindCount; ++rows)
        json.push_back(cellJson(row, static_cast<RowKind>(rows), isLatent));
  return json;
}

/// Prints the targets as the table of the forms that they write.
void printTargets(const CommandContext& context) {
  if (!context.common.json())
    return printTable(formsText(context.toolkit.targets));
  OrderedJson json;
  json["schema"] = "kvopt/list/1";
  json["targets"] = OrderedJson::array();
  for (const std::unique_ptr<Target>& target : context.toolkit.targets.all()) {
    auto form = presetForm(target->name());
    json["targets"].push_back({{"name", target->name().str()},
                               {"text", target->summary().str()},
                               {"options", form ? OrderedJson(optionsOf(*form)) : nullptr}});
    if (!form)
      llvm::consumeError(form.takeError());
  }
  json["forms"] = formsJson();
  printJson(json);
}

void printEngines(const CommandContext& context) {
  if (!context.common.json())
    return printOut(enginesText());
  OrderedJson json;
  json["schema"] = "kvopt/list/1";
  json["engines"] = OrderedJson::array();
  for (const EngineFact& fact : engineFacts())
    json["engines"].push_back(
        {{"name", fact.what},
         {"text", fact.note},
         {"caches", fact.types},
         {"onnxruntime_since", fact.ortVersion ? OrderedJson(fact.ortVersion) : nullptr}});
  printJson(json);
}

std::vector<Row> commandRows() {
  std::vector<Row> rows;
  for (unsigned i = 0; i < commandCount; ++i) {
    const CommandInfo& info = commandInfo(static_cast<Command>(i));
    rows.push_back({info.word, info.summary});
  }
  return rows;
}

std::vector<Row> optionRows() {
  std::vector<Row> rows;
  for (unsigned i = 0; i < commandCount; ++i)
    for (const OptionInfo* option : optionsOf(static_cast<Command>(i)))
      rows.push_back(
          {formatted("{} {}", wordOf(static_cast<Command>(i)), option->name()), option->sentence});
  return rows;
}

OrderedJson optionsJson() {
  OrderedJson json = OrderedJson::array();
  for (unsigned i = 0; i < commandCount; ++i)
    for (const OptionInfo* option : optionsOf(static_cast<Command>(i)))
      json.push_back({{"command", wordOf(static_cast<Command>(i))},
                      {"name", option->name()},
                      {"type", wordOf(option->type)},
                      {"values", option->words()},
                      {"default", *option->defaultValue == 0 ? OrderedJson(nullptr)
                                                             : OrderedJson(option->defaultValue)},
                      {"text", option->sentence}});
  return json;
}

OrderedJson commandsJson() {
  OrderedJson json = OrderedJson::array();
  for (unsigned i = 0; i < commandCount; ++i) {
    const CommandInfo& info = commandInfo(static_cast<Command>(i));
    OrderedJson examples = OrderedJson::array();
    for (const CommandExample& example : info.examples)
      examples.push_back({{"line", example.line}, {"purpose", example.purpose}});
    json.push_back({{"name", info.word},
                    {"text", info.summary},
                    {"description", info.description},
                    {"usages", std::vector<std::string>(info.usages.begin(), info.usages.end())},
                    {"examples", examples}});
  }
  return json;
}

OrderedJson manifestJson() {
  OrderedJson json = OrderedJson::array();
  for (const ManifestKey& key : manifestKeys())
    json.push_back({{"name", key.path},
                    {"type", typeText(*key.field, "")},
                    {"when", key.field->when ? OrderedJson(key.field->when) : OrderedJson(nullptr)},
                    {"default", key.field->byDefault ? OrderedJson::parse(key.field->byDefault)
                                                     : OrderedJson(nullptr)},
                    {"text", key.field->sentence}});
  return json;
}

struct ListOptions {
  std::string what;
  bool markdown = false;
  bool schema = false;
};

/// Prints a generated part of a page in docs/.
llvm::Expected<ExitCode> printMarkdown(const std::string& what, const CommandContext& context) {
  if (context.common.json())
    return usageError("--markdown and --format json exclude each other");
  if (what == "reasons")
    printOut(reasonsMarkdown());
  else if (what == "targets")
    printOut(formsMarkdown(context.toolkit.targets));
  else if (what == "engines")
    printOut(enginesMarkdown());
  else if (what == "options")
    printOut(optionsMarkdown());
  else if (what == "manifest")
    printOut(manifestMarkdown());
  else if (what == "ops")
    printOut(operatorsMarkdown(context.toolkit.ops));
  else
    return usageError(
        "--markdown is for: kvopt list reasons, targets, engines, options, manifest, ops");
  return ExitCode::Done;
}

llvm::Expected<ExitCode> printSchema(const ListOptions& options, const CommandContext& context) {
  if (options.markdown || context.common.json())
    return usageError("--schema excludes --markdown and --format json");
  if (options.what != "manifest")
    return usageError("--schema is for: kvopt list manifest");
  printOut(manifestJsonSchema());
  return ExitCode::Done;
}

llvm::Expected<ExitCode> list(const ListOptions& options, const CommandContext& context) {
  const std::string& what = options.what;
  if (options.schema)
    return printSchema(options, context);
  if (options.markdown)
    return printMarkdown(what, context);
  if (what == "targets") {
    printTargets(context);
    return ExitCode::Done;
  }
  if (what == "engines") {
    printEngines(context);
    return ExitCode::Done;
  }
  if (what == "reasons") {
    printReasons(context);
    return ExitCode::Done;
  }
  if (what == "kernels" && !context.toolkit.runner)
    return needsRuntime("kvopt list kernels");
  const std::vector<Row> rows = what == "options"    ? optionRows()
                                : what == "commands" ? commandRows()
                                                     : rowsOf(what, context.toolkit);
  if (context.common.json()) {
    OrderedJson json;
    json["schema"] = "kvopt/list/1";
    if (what == "options" || what == "commands" || what == "manifest") {
      json[what] = what == "options"    ? optionsJson()
                   : what == "commands" ? commandsJson()
                                        : manifestJson();
      printJson(json);
      return ExitCode::Done;
    }
    json[what] = OrderedJson::array();
    for (const Row& row : rows)
      json[what].push_back({{"name", row.name}, {"text", row.text}});
    printJson(json);
    return ExitCode::Done;
  }
  const size_t columns = terminalColumns(stdout).value_or(SIZE_MAX);
  for (const Row& row : rows) {
    const size_t start = std::max<size_t>(28, row.name.size()) + 1;
    printOut(
        formatText("{:<28} {}\n", row.name, SafeText(wrappedIfLong(row.text, columns, start))));
  }
  return ExitCode::Done;
}

} // namespace

void addListCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = addCommand(app, Command::List);
  CommandOptions add(*command, context, Command::List);
  add.add("what", options->what);
  add.add("--markdown", options->markdown);
  add.add("--schema", options->schema);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return list(*options, context); };
  });
}

} // namespace kvopt::cli
