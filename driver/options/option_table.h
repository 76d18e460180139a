// Every option of every command, in one table: names, type, values, default, and one sentence. The
// command line, its help, the manual page, shell completion and the tables of docs/cli.md are made
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
  Run,
  Bench,
  Diff,
  Gen,
  Opt,
  List,
  Completion,
  Help,
};
inline constexpr unsigned commandCount = 14;

/// The word of the command line: `add-cache`.
const char* wordOf(Command command);

/// A set of commands, a bit for each.
using CommandSet = uint16_t;
constexpr CommandSet setOf(Command command) {
  return static_cast<CommandSet>(1U << static_cast<unsigned>(command));
}

/// What the value of an option is.
enum class OptionType : uint8_t {
  Flag,         ///< no value
  CountedFlag,  ///< no value, or a whole number after `=`; `defaultValue` without one
  Word,         ///< one of `values`
  Words,        ///< several of `values`, separated by commas
  SizedWord,    ///< one of `values`, some of which take `:N`
  Text,         ///< any text but an empty one
  Texts,        ///< the same; the option may be given again
  Rule,         ///< the name of a rule
  Passes,       ///< the name of a pass, or `all`; the option may be given again
  Parts,        ///< the name of a rule or pass; the option may be given again
  Pipeline,     ///< names of passes with their options, separated by commas; may be empty
  Whole,        ///< a whole number from `least` to `most`
  Wholes,       ///< several whole numbers, separated by commas
  Real,         ///< a number that is not negative
  Model,        ///< the path of a model, of which all files are read
  Models,       ///< several such paths
  Input,        ///< the path of a file or folder that is read
  Output,       ///< the path of a file that is written
  OutputFolder, ///< the path of a folder that receives files
};

/// The word of a type in JSON: "flag", "sized_word".
const char* wordOf(OptionType type);

/// Whether the value of an option is a path.
constexpr bool isPath(OptionType type) { return type >= OptionType::Model; }

struct OptionInfo {
  CommandSet commands;
  /// With dashes, shortest first: "-o,--output". An argument has one name, without dashes.
  const char* names;
  OptionType type;
  /// The words of a Word, separated by `|`; for other types the text that help shows for the value:
  /// "N", "FILE". Empty for flags.
  const char* values;
  /// The value without the option, as text; empty where there is none, or where `sentence` says
  /// what happens then.
  const char* defaultValue;
  const char* sentence;
  /// The range of whole numbers.
  uint64_t least = 0;
  uint64_t most = INT64_MAX;

  bool isIn(Command command) const { return (commands & setOf(command)) != 0; }
  bool isArgument() const { return names[0] != '-'; }
  /// The long name with its dashes, or that of the argument.
  std::string_view name() const;
  /// Words of `values`; none for types without words.
  std::vector<std::string> words() const;
};

/// Options that are shown together under a title.
struct OptionSection {
  const char* title;
  std::span<const OptionInfo> options;
};

/// The table. Arguments are its first section.
std::span<const OptionSection> optionSections();

/// The option that every command and the program have, which is in no section.
const OptionInfo& helpOption();

/// The options of one command, in the order of the table.
std::vector<const OptionInfo*> optionsOf(Command command);

/// The option of a command that has this name, long or short, with dashes; null without one.
const OptionInfo* findOption(Command command, std::string_view name);

/// The table as Markdown, a section for each command and one for the options of all commands.
std::string optionsMarkdown();

} // namespace kvopt::driver
