// An option of a command, as it was added to the parser.
#pragma once

#include "driver/options/option_table.h"

#include <string>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace kvopt::cli {

struct AddedOption {
  driver::Command command;
  const driver::OptionInfo* info = nullptr;
  const CLI::App* app = nullptr;
  const CLI::Option* option = nullptr;
  /// Description of a file that is read, as in "the cache"; empty for other options.
  std::string role;
  /// Value of the variable before the arguments are parsed; empty if it has none.
  std::string initial;
};

} // namespace kvopt::cli
