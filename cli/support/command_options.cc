// Options of the table as options of CLI11.
#include "cli/support/command_options.h"

#include "cli/support/command.h"
#include "cli/support/option_values.h"
#include "support/format.h"
#include "support/nearest_word.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cassert>

namespace kvopt::cli {
using namespace driver;

namespace {

std::string checkMembership(const OptionInfo& info, const std::string& text) {
  const std::vector<std::string> words = info.words();
  if (llvm::is_contained(words, text))
    return "";
  return fmt::format("'{}' is none of {}{}", text, fmt::join(words, ", "), didYouMean(text, words));
}

std::string checkRange(const OptionInfo& info, const std::string& text) {
  uint64_t value = 0;
  // A number that does not fit was refused before.
  if (llvm::StringRef(text).getAsInteger(10, value) || (value >= info.least && value <= info.most))
    return "";
  if (value > info.most && info.most == INT64_MAX)
    return fmt::format("'{}' is too large", text);
  return fmt::format("{} is not from {} to {}", text, info.least, info.most);
}

/// An error message, or an empty text for a value that is fine.
std::string checkValue(const OptionInfo& info, const std::string& text) {
  switch (info.type) {
  case OptionType::Whole:
  case OptionType::Wholes:
    if (std::string problem = checkWholeNumber(text); !problem.empty())
      return problem;
    return checkRange(info, text);
  case OptionType::Real:
    return checkRealNumber(text);
  case OptionType::Word:
  case OptionType::Words:
    return text.empty() ? checkWord(text) : checkMembership(info, text);
  default:
    return checkWord(text);
  }
}

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
  return info.type == OptionType::CountedFlag
             ? fmt::format("{}{{{}}}", info.names, info.defaultValue)
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
  // The words that a command takes are those of the table.
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
