// What `--help` and `kvopt help` print, made from the tables of commands and options.
#pragma once

#include "driver/options/command_table.h"

#include <cstddef>
#include <string>
#include <vector>

namespace kvopt::cli {

/// The options of a command that have one title.
struct HelpSection {
  const char* title;
  std::vector<const driver::OptionInfo*> options;
};

/// The sections of a command, without those that are empty. The last one ends with `--help`.
std::vector<HelpSection> helpSections(driver::Command command);

/// The names of an option with its value: "-o, --output FILE". Words are the value where they are
/// short: "--pad left|right|none".
std::string optionHead(const driver::OptionInfo& option);

/// The sentence of an option, followed by the words that are not in its head and by its default.
std::string optionSentence(const driver::OptionInfo& option);

/// One sentence for each exit code.
std::string exitCodeText();

/// What the program is for.
std::string programText();

/// The help of a command, in lines of at most `columns` columns.
std::string commandHelp(driver::Command command, size_t columns);

/// The list of all commands.
std::string programHelp(size_t columns);

} // namespace kvopt::cli
