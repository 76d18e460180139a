// Options of the table as options of CLI11.
#include "cli/support/command_options.h"

#include "cli/support/command.h"
#include "driver/options/option_check.h"
#include "support/format.h"

#include <cassert>

namespace kvopt::cli {
using namespace driver;

namespace {

bool isList(OptionType type) { return type == OptionType::Wholes || type == OptionType::Words; }

} // namespace

CLI::App* addCommand(CLI::App& app, Command command) { return app.add_subcommand(wordOf(command)); }

const OptionInfo& CommandOptions::infoOf(const char* name) const {
  const OptionInfo* info = findOption(command, name);
  assert(info && "the option is in the table");
  return *info;
}

bool CommandOptions::isFlag(const OptionInfo& info) {
  return info.type == OptionType::Flag || info.type == OptionType::CountedFlag;
}

std::string CommandOptions::parserNames(const OptionInfo& info) {
  return info.type == OptionType::CountedFlag ? formatted("{}{{{}}}", info.names, info.defaultValue)
                                              : info.names;
}

CLI::Option* CommandOptions::finished(CLI::Option* option, const OptionInfo& info) {
  std::string initial;
  if (!isFlag(info)) {
    initial = option->get_default_str();
    if (info.type != OptionType::Pipeline)
      option->check(
          CLI::Validator([&info](std::string& text) { return checkValue(info, text); }, ""));
  }
  if (info.isArgument())
    option->required();
  if (isList(info.type))
    option->delimiter(',');
  if (info.type == OptionType::Texts)
    option->allow_extra_args(false);
  context.options.push_back({command, &info, &app, option, "", std::move(initial)});
  return option;
}

CLI::Option* CommandOptions::addInput(const char* name, std::string& value, const char* role) {
  CLI::Option* option = add(name, value);
  context.options.back().role = role;
  return option;
}

void CommandOptions::addCommon() {
  // The table determines the words that a command accepts.
  add("--format", context.common.format,
      {{"text", AnswerFormat::Text}, {"json", AnswerFormat::Json}, {"svg", AnswerFormat::Svg}});
  add("--color", context.common.color,
      {{"auto", ColorChoice::Auto},
       {"always", ColorChoice::Always},
       {"never", ColorChoice::Never}});
  add("--max-nodes", context.toolkit.limits.maxNodes);
  add("--verbose", context.common.verbose);
  add("--quiet", context.common.quiet);
}

} // namespace kvopt::cli
