// How values of options are read, for all options of all commands.
#pragma once

namespace CLI {
class App;
}

namespace kvopt::cli {

/// Checks the value of every option and argument of every subcommand before it is converted:
/// - A whole number has decimal digits only, and fits in 64 bits.
/// - Another number is a finite decimal number that is not negative.
/// - A file name or word is not empty; `--pipeline` may be.
///
/// Call it when all options exist. Checks that options have of their own remain.
void checkOptionValues(CLI::App& app);

/// Throws a CLI::ValidationError for a list that has an empty part, such as `1,,2`: the parser
/// drops empty parts. `command` is the subcommand of the parsed arguments.
void checkLists(const CLI::App& command, int argc, const char* const* argv);

} // namespace kvopt::cli
