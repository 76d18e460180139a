// Checks of option values, shared by all commands.
#pragma once

namespace CLI {
class App;
}

namespace kvopt::cli {

/// Throws a CLI::ValidationError for a list that has an empty part, such as `1,,2`: the parser
/// drops empty parts. `command` is the subcommand of the parsed arguments.
void checkLists(const CLI::App& command, int argc, const char* const* argv);

} // namespace kvopt::cli
