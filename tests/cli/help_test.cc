// Help and the manual page have everything that the tables have, in lines that fit.
#include "cli/support/help_text.h"

#include "cli/support/man_page.h"
#include "cli/support/wrapped_text.h"
#include "tests/cli/cli_fixture.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <sstream>

namespace kvopt {
using namespace cli;
using namespace driver;

namespace {

using testing::HasSubstr;

std::vector<Command> allCommands() {
  std::vector<Command> commands;
  for (unsigned i = 0; i < commandCount; ++i)
    commands.push_back(static_cast<Command>(i));
  return commands;
}

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

/// The text with one space in the place of each line feed and indentation.
std::string joined(const std::string& text) {
  std::string out;
  for (char byte : text)
    if (byte != ' ' && byte != '\n')
      out += byte;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  return out;
}

/// The variable COLUMNS for a while; null: not set.
class Columns {
public:
  explicit Columns(const char* value) {
    if (const char* old = std::getenv("COLUMNS"))
      before = old;
    if (value)
      ::setenv("COLUMNS", value, 1);
    else
      ::unsetenv("COLUMNS");
  }
  ~Columns() {
    if (before)
      ::setenv("COLUMNS", before->c_str(), 1);
    else
      ::unsetenv("COLUMNS");
  }
  Columns(const Columns&) = delete;
  Columns& operator=(const Columns&) = delete;

private:
  std::optional<std::string> before;
};

TEST(Help, FitsTheWidth) {
  for (Command command : allCommands())
    for (size_t columns : {80, 90, 100})
      for (const std::string& line : linesOf(commandHelp(command, columns)))
        EXPECT_LE(columnsOf(line), columns) << wordOf(command) << ": " << line;
  for (const std::string& line : linesOf(programHelp(80)))
    EXPECT_LE(columnsOf(line), 80u) << line;
  // A narrow terminal breaks more lines; those to copy and usages stay whole.
  EXPECT_GT(linesOf(commandHelp(Command::Rewrite, 50)).size(),
            linesOf(commandHelp(Command::Rewrite, 80)).size());
}

TEST(Help, WidthIsThatOfTheVariableUpToAHundred) {
  const auto printed = [](const char* value) {
    Columns columns(value);
    return runProgram({"help", "rewrite"}).out;
  };
  EXPECT_EQ(printed(nullptr), commandHelp(Command::Rewrite, 80));
  EXPECT_EQ(printed("90"), commandHelp(Command::Rewrite, 90));
  EXPECT_EQ(printed("400"), commandHelp(Command::Rewrite, 100));
  EXPECT_EQ(printed("7"), commandHelp(Command::Rewrite, 40));
  for (const char* wrong : {"", "0", "-3", "wide"})
    EXPECT_EQ(printed(wrong), commandHelp(Command::Rewrite, 80)) << wrong;
}

TEST(Help, TheCommandPrintsWhatTheOptionPrints) {
  for (Command command : allCommands()) {
    const ProgramResult option = runProgram({wordOf(command), "--help"});
    const ProgramResult word = runProgram({"help", wordOf(command)});
    EXPECT_EQ(option.code, 0);
    EXPECT_EQ(word.code, 0);
    EXPECT_EQ(word.out, option.out);
    EXPECT_EQ(word.err + option.err, "");
  }
  EXPECT_EQ(runProgram({"help"}).out, runProgram({"--help"}).out);
  const ProgramResult wrong = runProgram({"help", "rewrit"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'rewrite'?"));
}

TEST(Help, HasEveryOptionWithItsWordsAndItsDefault) {
  for (Command command : allCommands()) {
    const std::string help = joined(commandHelp(command, 80));
    for (const OptionInfo* option : optionsOf(command)) {
      EXPECT_THAT(help, HasSubstr(" " + optionHead(*option) + " " + option->sentence))
          << wordOf(command);
      if (*option->defaultValue != 0) {
        EXPECT_THAT(help, HasSubstr(std::string(" Default: ") + option->defaultValue + "."));
      }
      for (const std::string& word : option->words())
        EXPECT_THAT(help, HasSubstr(word)) << option->name();
    }
    EXPECT_THAT(help, HasSubstr(" -h, --help Print this text."));
  }
}

TEST(Help, EveryCommandHasUsagesAndExamples) {
  const std::vector<std::string> words = findOption(Command::Help, "command")->words();
  ASSERT_EQ(words.size(), commandCount);
  for (Command command : allCommands()) {
    const CommandInfo& info = commandInfo(command);
    EXPECT_EQ(words[static_cast<size_t>(command)], info.word);
    EXPECT_FALSE(info.usages.empty()) << info.word;
    EXPECT_FALSE(std::string_view(info.summary).ends_with('.')) << info.word;
    EXPECT_TRUE(std::string_view(info.description).ends_with('.')) << info.word;
    EXPECT_GE(info.examples.size(), 2u) << info.word;
    EXPECT_LE(info.examples.size(), 4u) << info.word;
    for (const CommandExample& example : info.examples) {
      EXPECT_THAT(example.line, HasSubstr(std::string("kvopt ") + info.word));
      EXPECT_FALSE(std::string_view(example.purpose).ends_with('.')) << example.purpose;
    }
  }
}

TEST(Help, ListsOfCommandsHaveTheExamples) {
  const nlohmann::json json = runJson({"list", "commands"});
  ASSERT_EQ(json["commands"].size(), commandCount);
  for (Command command : allCommands()) {
    const nlohmann::json& entry = json["commands"][static_cast<size_t>(command)];
    EXPECT_EQ(entry["name"], wordOf(command));
    EXPECT_EQ(entry["examples"].size(), commandInfo(command).examples.size());
  }
}

TEST(ManPage, HasASectionForEveryCommandAndEveryOption) {
  const ProgramResult result = runProgram({"help", "--man"});
  ASSERT_EQ(result.code, 0);
  EXPECT_THAT(result.out, testing::StartsWith(".TH KVOPT 1 "));
  for (char byte : result.out)
    ASSERT_LT(static_cast<unsigned char>(byte), 0x80u) << "groff reads ASCII";
  const std::string separator = ".SH \"kvopt ";
  for (Command command : allCommands()) {
    std::string word;
    for (char byte : std::string(wordOf(command)))
      word += byte == '-' ? std::string("\\-") : std::string(1, byte);
    const size_t start = result.out.find(separator + word + "\"\n");
    ASSERT_NE(start, std::string::npos) << word;
    const std::string section = result.out.substr(start, result.out.find("\n.SH ", start) - start);
    size_t entries = 0;
    for (const std::string& line : linesOf(section))
      entries += line == ".TP" ? 1 : 0;
    EXPECT_EQ(entries, optionsOf(command).size() + 1) << word;
  }
  EXPECT_EQ(runProgram({"help", "--man", "rewrite"}).code, 2);
}

} // namespace
} // namespace kvopt
