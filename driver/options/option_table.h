// Table of the options of all commands: names, type, values, default, and one sentence. The command
// line, its help, the manual page, shell completion and the tables of docs/cli.md are generated
// from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvopt::driver {

/// A command of the program.
enum class Command : uint8_t {
  Inspect,
  Explain,
  Rewrite,
  AddCache,
  MakeDynamic,
  Verify,
  Check,
  Run,
  Bench,
  Diff,
  Reduce,
  Gen,
  Opt,
  List,
  Completion,
  Help,
};
inline constexpr unsigned commandCount = static_cast<unsigned>(Command::Help) + 1;

/// Name of a command on the command line: `add-cache`.
const char* wordOf(Command command);

/// A set of commands, with one bit for each.
using CommandSet = uint32_t;
constexpr CommandSet setOf(Command command) {
  return static_cast<CommandSet>(1U << static_cast<unsigned>(command));
}

/// The type of an option's value.
enum class OptionType : uint8_t {
  Flag,         ///< no value
  CountedFlag,  ///< a whole number after `=`, or no value, which means `defaultValue`
  Word,         ///< one of `values`
  Words,        ///< several of `values`, separated by commas
  SizedWord,    ///< one of `values`; some accept `:N`
  Text,         ///< any text that is not empty
  Texts,        ///< the same; the option may be repeated
  Rule,         ///< the name of a rule
  Passes,       ///< the name of a pass, or `all`; the option may be repeated
  Parts,        ///< the name of a rule or pass; the option may be repeated
  Pipeline,     ///< names of passes with their options, separated by commas; may be empty
  Whole,        ///< a whole number from `least` to `most`
  Wholes,       ///< several whole numbers, separated by commas
  Real,         ///< a number that is not negative
  Model,        ///< the path of a model; all of its files are read
  Models,       ///< paths of several models
  Input,        ///< the path of a file or folder that is read
  Output,       ///< the path of a file that is written
  OutputFolder, ///< the path of a folder that receives files
};

/// Name of a type in JSON: "flag", "sized_word".
const char* wordOf(OptionType type);

/// Whether the value of an option is a path.
constexpr bool isPath(OptionType type) { return type >= OptionType::Model; }

struct OptionInfo {
  CommandSet commands;
  /// Names with their dashes, shortest first: "-o,--output". An argument has one name, without
  /// dashes.
  const char* names;
  OptionType type;
  /// The words of a Word, separated by `|`; for other types, the placeholder that the help shows:
  /// "N", "FILE". Empty for flags.
  const char* values;
  /// The value if the option is not given, as text; empty if there is none, or if `sentence`
  /// describes the default.
  const char* defaultValue;
  const char* sentence;
  /// Smallest and largest valid whole number.
  uint64_t least = 0;
  uint64_t most = INT64_MAX;

  bool isIn(Command command) const { return (commands & setOf(command)) != 0; }
  bool isArgument() const { return names[0] != '-'; }
  /// The long name with its dashes, or the argument's name.
  std::string_view name() const;
  /// Words of `values`; none for types without words.
  std::vector<std::string> words() const;
};

/// Options that are listed together under a title.
struct OptionSection {
  const char* title;
  std::span<const OptionInfo> options;
};

/// The table. The first section has the arguments.
std::span<const OptionSection> optionSections();

/// `--help`, which every command and the program have. It is not in any section.
const OptionInfo& helpOption();

/// The options of one command, in the order of the table.
std::vector<const OptionInfo*> optionsOf(Command command);

/// The option of a command with this long or short name, dashes included; null if there is none.
const OptionInfo* findOption(Command command, std::string_view name);

/// The table as Markdown, with a section for each command and one for the options that all commands
/// share.
std::string optionsMarkdown();

} // namespace kvopt::driver
