// How values of options are read, for all options of all commands.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace kvopt::cli {

/// What is wrong with a whole number, which has decimal digits only and fits in 64 bits; empty for
/// one that is fine.
std::string checkWholeNumber(const std::string& text);
/// The same of a finite decimal number that is not negative.
std::string checkRealNumber(const std::string& text);
/// The same of a file name or word, which is not empty.
std::string checkWord(const std::string& text);

/// Throws a CLI::ValidationError for a list that has an empty part, such as `1,,2`: the parser
/// drops empty parts. `command` is the subcommand of the parsed arguments.
void checkLists(const CLI::App& command, int argc, const char* const* argv);

} // namespace kvopt::cli
