// Usage, description, options in sections, examples.
#include "cli/support/help_text.h"

#include "cli/support/wrapped_text.h"
#include "support/format.h"

namespace kvopt::cli {
using namespace driver;

namespace {

/// Column at which descriptions of options start; longer heads are on a line of their own.
constexpr size_t optionColumn = 26;
/// Column at which summaries of commands start.
constexpr size_t commandColumn = 16;
/// Largest width of a list of words in a head; longer lists follow the sentence.
constexpr size_t mostColumnsOfWords = 24;

bool showsWords(const OptionInfo& option) {
  return std::string_view(option.values).size() <= mostColumnsOfWords;
}

/// The placeholder or words for the value; empty for flags.
std::string valueText(const OptionInfo& option) {
  if (option.type == OptionType::CountedFlag)
    return formatted("[={}]", option.values);
  if (*option.values == 0)
    return "";
  const bool isName = !option.words().empty() && !showsWords(option);
  return formatted(" {}", isName ? "NAME" : option.values);
}

/// A row of two columns: `head` from column 2, `text` from `column`.
std::string row(const std::string& head, const std::string& text, size_t column, size_t columns) {
  std::string out = "  " + head;
  if (columnsOf(out) + 2 > column)
    out += "\n" + std::string(column, ' ');
  else
    out.append(column - columnsOf(out), ' ');
  return out + wrapped(text, columns, column, column) + "\n";
}

std::string paragraph(std::string_view text, size_t columns) {
  return wrapped(text, columns, 0, 0) + "\n";
}

/// Lines with examples. They are for copying, so they are not wrapped.
std::string exampleLines(std::span<const CommandExample> examples, size_t columns) {
  std::string out = "\nExamples:\n";
  for (const CommandExample& example : examples)
    out += formatted("  {}\n      {}\n", example.line, wrapped(example.purpose, columns, 6, 6));
  return out;
}

} // namespace

std::vector<HelpSection> helpSections(Command command) {
  std::vector<HelpSection> sections;
  for (const OptionSection& section : optionSections()) {
    HelpSection shown{section.title, {}};
    for (const OptionInfo& option : section.options)
      if (option.isIn(command))
        shown.options.push_back(&option);
    if (!shown.options.empty())
      sections.push_back(std::move(shown));
  }
  const char* last = optionSections().back().title;
  if (sections.empty() || sections.back().title != last)
    sections.push_back({last, {}});
  sections.back().options.push_back(&helpOption());
  return sections;
}

std::string optionHead(const OptionInfo& option) {
  std::string names = option.names;
  if (const size_t comma = names.find(','); comma != std::string::npos)
    names.insert(comma + 1, " ");
  return option.isArgument() ? names : names + valueText(option);
}

std::string optionSentence(const OptionInfo& option) {
  std::string text = option.sentence;
  const std::vector<std::string> words = option.words();
  if (!words.empty() && (option.isArgument() || !showsWords(option)))
    text += formatted(" One of: {}.", joinedText(words, ", "));
  if (*option.defaultValue != 0)
    text += formatted(" Default: {}.", option.defaultValue);
  return text;
}

std::string exitCodeText() {
  return "0 done or equal; 1 different, or a requirement not met; 2 wrong usage; 3 an input that "
         "cannot be read, or an output that cannot be written; 4 an operator that the runtime "
         "does not have; 5 an internal error.";
}

std::string programText() {
  return "kvopt finds the attention layers and key/value caches of exported ONNX decoders, "
         "rewrites them so that generating a token copies no cache, and proves that the model "
         "computes the same.";
}

std::string commandHelp(Command command, size_t columns) {
  const CommandInfo& info = commandInfo(command);
  std::string out;
  for (const char* usage : info.usages)
    out += formatted("{} kvopt {} {}\n", out.empty() ? "Usage:" : "      ", info.word, usage);
  out += "\n" + paragraph(info.description, columns);
  for (const HelpSection& section : helpSections(command)) {
    out += formatted("\n{}:\n", section.title);
    for (const OptionInfo* option : section.options)
      out += row(optionHead(*option), optionSentence(*option), optionColumn, columns);
  }
  return out + exampleLines(info.examples, columns);
}

std::string programHelp(size_t columns) {
  std::string out = "Usage: kvopt COMMAND [ARGUMENTS] [OPTIONS]\n\n";
  out += paragraph(programText(), columns) + "\nCommands:\n";
  for (unsigned i = 0; i < commandCount; ++i) {
    const CommandInfo& info = commandInfo(static_cast<Command>(i));
    out += row(info.word, info.summary, commandColumn, columns);
  }
  out += "\nOptions:\n";
  out += row("-h, --help", "Print this text.", commandColumn, columns);
  out += row("--version", "Print the version.", commandColumn, columns);
  out += exampleLines(firstExamples(), columns);
  return out + "\n" + paragraph("Exit codes: " + exitCodeText(), columns);
}

} // namespace kvopt::cli
