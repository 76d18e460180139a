// Texts of `--help` and `kvopt help`, generated from the tables of commands and options.
#pragma once

#include "driver/options/command_table.h"

#include <cstddef>
#include <string>
#include <vector>

namespace kvopt::cli {

/// The options of a command under one title.
struct HelpSection {
  const char* title;
  std::vector<const driver::OptionInfo*> options;
};

/// The sections of a command, except empty ones. The last one ends with `--help`.
std::vector<HelpSection> helpSections(driver::Command command);

/// The names of an option with its value: "-o, --output FILE". If the list of words is short, it is
/// the value: "--pad left|right|none".
std::string optionHead(const driver::OptionInfo& option);

/// The sentence of an option, followed by the words unless the head has them, and by the default.
std::string optionSentence(const driver::OptionInfo& option);

/// One sentence for each exit code.
std::string exitCodeText();

/// Description of the program.
std::string programText();

/// The help of a command, wrapped to `columns` columns.
std::string commandHelp(driver::Command command, size_t columns);

/// The help of the program, with a list of all commands.
std::string programHelp(size_t columns);

} // namespace kvopt::cli
