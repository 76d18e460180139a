// Adding commands and options of the tables to the parser.
#pragma once

#include "cli/support/added_option.h"

#include <CLI/CLI.hpp>

#include <concepts>
#include <string>
#include <utility>
#include <vector>

namespace kvopt::cli {

struct CommandContext;

/// Adds a command to the parser, with the help from the table (driver/options/command_table.h).
CLI::App* addCommand(CLI::App& app, driver::Command command);

/// Adds the options of one command. Names, sentences, defaults and checks come from the table
/// (driver/options/option_table.h); an option must be in the table.
class CommandOptions {
public:
  CommandOptions(CLI::App& commandApp, CommandContext& commandContext, driver::Command addedCommand)
      : app(commandApp), context(commandContext), command(addedCommand) {}

  /// Adds an option, argument or flag. `name` is one of its names.
  template <class Value> CLI::Option* add(const char* name, Value& value) {
    const driver::OptionInfo& info = infoOf(name);
    const std::string names = parserNames(info);
    if constexpr (std::same_as<Value, bool> || std::same_as<Value, std::string>)
      if (isFlag(info))
        return finished(app.add_flag(names, value), info);
    return finished(app.add_option(names, value)->capture_default_str(), info);
  }

  /// Adds an option with one word for each value.
  template <class Value>
  CLI::Option* add(const char* name, Value& value,
                   std::vector<std::pair<const char*, Value>> words) {
    const driver::OptionInfo& info = infoOf(name);
    std::string initial;
    for (const auto& word : words)
      if (word.second == value)
        initial = word.first;
    const auto take = [&value, words = std::move(words)](const std::string& given) {
      for (const auto& word : words)
        if (given == word.first)
          value = word.second;
    };
    return finished(
        app.add_option_function<std::string>(parserNames(info), take)->default_str(initial), info);
  }

  /// Adds an option that names a file or folder to read. `role` describes it, with an article: "the
  /// cache".
  CLI::Option* addInput(const char* name, std::string& value, const char* role);

  /// Adds `--format`, `--color`, `--max-nodes`, `-v` and `-q`.
  void addCommon();

private:
  const driver::OptionInfo& infoOf(const char* name) const;
  static bool isFlag(const driver::OptionInfo& info);
  static std::string parserNames(const driver::OptionInfo& info);
  /// Applies the table's row to the option, and records the option.
  CLI::Option* finished(CLI::Option* option, const driver::OptionInfo& info);

  CLI::App& app;
  CommandContext& context;
  driver::Command command;
};

} // namespace kvopt::cli
