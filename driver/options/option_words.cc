// Lookup of options and of their words.
#include "driver/options/command_table.h"
#include "driver/options/option_table.h"

#include <algorithm>
#include <cstdlib>

namespace kvopt::driver {

const char* wordOf(Command command) { return commandInfo(command).word; }

const char* wordOf(OptionType type) {
  constexpr const char* words[] = {
      "flag",  "counted_flag", "word",  "words",    "sized_word",   "text",   "texts",
      "rule",  "passes",       "parts", "pipeline", "whole",        "wholes", "real",
      "model", "models",       "input", "output",   "output_folder"};
  return words[static_cast<size_t>(type)];
}

namespace {

std::vector<std::string> splitWords(std::string_view text, char separator) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

} // namespace

std::string_view OptionInfo::name() const {
  const std::string_view all = names;
  // Short names come first.
  const size_t dashes = all.find("--");
  if (dashes == std::string_view::npos)
    return all;
  const std::string_view longNames = all.substr(dashes);
  return longNames.substr(0, longNames.find(','));
}

std::vector<std::string> OptionInfo::words() const {
  if (type != OptionType::Word && type != OptionType::Words && type != OptionType::SizedWord)
    return {};
  return splitWords(values, '|');
}

std::vector<const OptionInfo*> optionsOf(Command command) {
  std::vector<const OptionInfo*> options;
  for (const OptionSection& section : optionSections())
    for (const OptionInfo& option : section.options)
      if (option.isIn(command))
        options.push_back(&option);
  return options;
}

const OptionInfo* findOption(Command command, std::string_view name) {
  for (const OptionInfo* option : optionsOf(command))
    for (const std::string& each : splitWords(option->names, ','))
      if (each == name)
        return option;
  return nullptr;
}

} // namespace kvopt::driver
