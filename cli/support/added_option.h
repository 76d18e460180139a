// An option of a command as it was added to the parser.
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
  /// What a file that is read is, as in "the cache"; empty for other options.
  std::string role;
  /// The value of the variable before the arguments are read; empty where it has none.
  std::string initial;
};

} // namespace kvopt::cli
