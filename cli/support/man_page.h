// The manual page kvopt(1).
#pragma once

#include <string>

namespace kvopt::cli {

/// The page as troff with the macros of man(7): the program, and a section for each command,
/// generated from the tables of commands and options.
std::string manPage(const std::string& version);

} // namespace kvopt::cli
