// The table as a section of docs/cli.md.
#include "driver/options/option_table.h"

#include "support/format.h"

#include <algorithm>

namespace kvopt::driver {

namespace {

/// The text of a cell, with `|` escaped.
std::string cellText(std::string_view text) {
  std::string cell;
  for (char byte : text)
    cell += byte == '|' ? std::string("\\|") : std::string(1, byte);
  return cell;
}

/// The names of an option with its value: `-o`, `--output FILE`.
std::string namesCell(const OptionInfo& option) {
  std::string names = option.names;
  for (size_t at = names.find(','); at != std::string::npos; at = names.find(',', at + 4))
    names.replace(at, 1, "`, `");
  if (option.isArgument())
    return formatted("`{}`", names);
  if (option.type == OptionType::CountedFlag)
    return formatted("`{}[={}]`", names, option.values);
  const bool hasWords = !option.words().empty();
  return *option.values == 0 || hasWords ? formatted("`{}`", names)
                                         : formatted("`{} {}`", names, cellText(option.values));
}

std::string valuesCell(const OptionInfo& option) {
  std::string cell;
  for (const std::string& word : option.words())
    cell += formatted("{}`{}`", cell.empty() ? "" : ", ", word);
  return cell;
}

std::string rowText(const OptionInfo& option) {
  const std::string values = valuesCell(option);
  const std::string initial =
      *option.defaultValue == 0 ? "" : formatted("`{}`", option.defaultValue);
  return formatted("| {} | {} | {} | {} |\n", namesCell(option), values, initial,
                   cellText(option.sentence));
}

constexpr const char* head = "| option | values | default | |\n|---|---|---|---|\n";

/// Whether the option is in the last section, which all commands share that answer about a model or
/// about kvopt.
bool isCommon(const OptionInfo& option) {
  const std::span<const OptionInfo> common = optionSections().back().options;
  return &option >= common.data() && &option < common.data() + common.size();
}

} // namespace

std::string optionsMarkdown() {
  std::string text;
  for (unsigned i = 0; i < commandCount; ++i) {
    const auto command = static_cast<Command>(i);
    text += formatted("### kvopt {}\n\n{}", wordOf(command), head);
    for (const OptionInfo* option : optionsOf(command))
      if (!isCommon(*option) || (command == Command::Diff && option->name() == "--format"))
        text += rowText(*option);
    text += "\n";
  }
  text += formatted("### Every command\n\n{}", head);
  for (const OptionInfo* option : optionsOf(Command::Inspect))
    if (isCommon(*option))
      text += rowText(*option);
  return text;
}

} // namespace kvopt::driver
