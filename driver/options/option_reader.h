// OptionReader: assigns options that are given as names and texts to variables.
#pragma once

#include "driver/options/option_table.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvopt::driver {

/// An option as a program gives it: `name` with or without its leading dashes.
struct OptionText {
  std::string name;
  std::string text;
};

/// Reads the options of one call, which are those of one command in the table of options. It has
/// the same functions for adding variables as the command line's parser
/// (cli/support/command_options.h), so that both share the code that adds them. A variable keeps
/// its value if its option is not given.
class OptionReader {
public:
  OptionReader(Command readCommand, llvm::ArrayRef<OptionText> given);

  /// Adds a variable for the option `name`, with its dashes: a bool, a string, a number, a vector
  /// of strings or numbers, or a std::optional of one of these.
  template <class Value> void add(const char* name, Value& value) {
    for (const std::string& text : textsOf(name))
      assign(text, value);
  }

  /// Adds a variable with one word for each value.
  template <class Value>
  void add(const char* name, Value& value, std::vector<std::pair<const char*, Value>> words) {
    for (const std::string& text : textsOf(name))
      for (const auto& word : words)
        if (text == word.first)
          value = word.second;
  }

  /// Adds a variable for the path of a file that is read. `role` is unused; the command line's
  /// parser needs it.
  void addInput(const char* name, std::string& value, const char* /*role*/) { add(name, value); }

  /// Fails with a usage error if the command has no such option, if no variable was added for it,
  /// or if its value is invalid. Call it after all variables have been added.
  llvm::Error finish();

private:
  struct Given {
    const OptionInfo* info; ///< null: the command has no such option
    std::string name;
    std::vector<std::string> texts; ///< one text for each part of a list
    bool isRead = false;
  };

  /// The texts given for an option; empty if one of them is invalid.
  std::vector<std::string> textsOf(const char* name);

  static void assign(const std::string& text, bool& value) { value = text == "true"; }
  static void assign(const std::string& text, std::string& value) { value = text; }
  static void assign(const std::string& text, double& value);
  template <std::integral Number> static void assign(const std::string& text, Number& value) {
    llvm::StringRef(text).getAsInteger(10, value);
  }
  template <class Value> static void assign(const std::string& text, std::optional<Value>& value) {
    assign(text, value.emplace());
  }
  template <class Value> static void assign(const std::string& text, std::vector<Value>& value) {
    assign(text, value.emplace_back());
  }

  Command command;
  std::vector<Given> options;
  std::string problem; ///< the first error
};

} // namespace kvopt::driver
