// Values of all options of all commands are read whole and in range.
#include "cli/app.h"
#include "driver/options/option_table.h"
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

#include <set>

namespace kvopt {
using namespace cli;
using namespace driver;

namespace {

using testing::HasSubstr;

/// The options of a command that are not arguments.
std::vector<const OptionInfo*> optionsWithValues(Command command, std::set<OptionType> types) {
  std::vector<const OptionInfo*> options;
  for (const OptionInfo* option : optionsOf(command))
    if (!option->isArgument() && types.count(option->type) != 0)
      options.push_back(option);
  return options;
}

constexpr Command commands[] = {
    Command::Inspect, Command::Explain, Command::Rewrite, Command::AddCache, Command::MakeDynamic,
    Command::Verify,  Command::Run,     Command::Bench,   Command::Diff,     Command::Gen,
    Command::Opt,     Command::List,    Command::Reduce};

TEST(OptionValues, NumbersAreReadWholeAndInRange) {
  size_t tried = 0;
  for (Command command : commands)
    for (const OptionInfo* option :
         optionsWithValues(command, {OptionType::Whole, OptionType::Wholes, OptionType::Real})) {
      const std::string name(option->name());
      std::vector<std::string> wrong = {"",    " 1",  "1 ",   "1x",    "x",    "-1",     "+1",
                                        "nan", "inf", "-inf", "1e400", "0x10", "\x1b[2J"};
      if (option->type != OptionType::Real) {
        wrong.insert(wrong.end(), {"1.0", "1e3", "99999999999999999999", "18446744073709551616"});
        if (option->least > 0)
          wrong.push_back(std::to_string(option->least - 1));
        if (option->most < UINT64_MAX)
          wrong.push_back(std::to_string(option->most + 1));
      }
      for (const std::string& value : wrong) {
        const ProgramResult result = runProgram({wordOf(command), name, value});
        EXPECT_EQ(result.code, 2) << wordOf(command) << " " << name << " '" << value << "'";
        EXPECT_THAT(result.err, HasSubstr(name)) << wordOf(command) << " '" << value << "'";
        EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
        ++tried;
      }
    }
  EXPECT_GT(tried, 300u);
}

TEST(OptionValues, WordsAreThoseOfTheTable) {
  size_t tried = 0;
  for (Command command : commands)
    for (const OptionInfo* option :
         optionsWithValues(command, {OptionType::Word, OptionType::Words})) {
      const std::string name(option->name());
      const ProgramResult result = runProgram({wordOf(command), name, "nosuch"});
      EXPECT_EQ(result.code, 2) << wordOf(command) << " " << name;
      EXPECT_THAT(result.err, HasSubstr(name + ": 'nosuch' is none of ")) << wordOf(command);
      for (const std::string& word : option->words()) {
        EXPECT_THAT(result.err, HasSubstr(word));
        // Another error comes first, if any: a model that is missing.
        EXPECT_EQ(runProgram({wordOf(command), name, word}).err.find("is none of"),
                  std::string::npos)
            << wordOf(command) << " " << name << " " << word;
      }
      ++tried;
    }
  EXPECT_GT(tried, 40u);
  EXPECT_THAT(runProgram({"inspect", "--format", "jsn"}).err, HasSubstr("did you mean 'json'?"));
}

TEST(OptionValues, NearWordsAreSuggestedEverywhere) {
  const std::string model = shippedModel("kjv");
  const struct {
    std::vector<std::string> arguments;
    const char* meant;
  } cases[] = {
      {{"rewrite", model, "--dry-run", "--to", "ort-gga"}, "ort-gqa"},
      {{"rewrite", model, "--dry-run", "--cache", "rng"}, "ring"},
      {{"rewrite", model, "--dry-run", "--split", "tile:4"}, "tiles"},
      {{"rewrite", model, "--dry-run", "--disable", "raise-attension"}, "raise-attention"},
      {{"rewrite", model, "--dry-run", "--print-ir-after", "normalise"}, "normalize"},
      {{"explain", model, "--rule", "raise-onx-attention"}, "raise-onnx-attention"},
      {{"explain", model, "--disable", "strip-gqa-brodcast"}, "strip-gqa-broadcast"},
      {{"verify", model, "--references", "--forms", "exported,sharde"}, "shared"},
      {{"opt", model, "--pipeline", "normalize,detect-site"}, "detect-sites"},
      {{"opt", model, "--pipeline", "apply-rules{rules=absorb-scales}"}, "absorb-scale"},
      {{"opt", model, "--pipeline", "apply-rules{rule=absorb-scale}"}, "rules"},
      {{"opt", model, "--pipeline", "lower{to=ort-gqaa}"}, "ort-gqa"},
      {{"opt", model, "--print-ir-before", "al"}, "all"},
      {{"gen", "lama", "-o", "none.onnx"}, "llama"},
      {{"list", "reason"}, "reasons"},
      {{"completion", "bsh"}, "bash"},
      {{"help", "verfy"}, "verify"},
      {{"run", model, "--text", "a", "--input", "attention_mask=zeroes"}, "zeros"},
      {{"run", model, "--text", "a", "--input", "attention_mask=ones@bach,new"}, "batch"},
      {{"run", model, "--text", "a", "--input", "attention_msk=ones"}, "attention_mask"},
  };
  for (const auto& each : cases) {
    const ProgramResult result = runProgram(each.arguments);
    EXPECT_EQ(result.code, 2) << each.meant << result.err;
    EXPECT_THAT(result.err, HasSubstr(std::string("did you mean '") + each.meant + "'?"))
        << testing::PrintToString(each.arguments);
  }
}

TEST(OptionValues, WordsAreNotEmpty) {
  size_t tried = 0;
  for (Command command : commands)
    for (const OptionInfo* option : optionsWithValues(
             command, {OptionType::Word, OptionType::Words, OptionType::SizedWord, OptionType::Text,
                       OptionType::Texts, OptionType::Rule, OptionType::Passes, OptionType::Parts,
                       OptionType::Model, OptionType::Input, OptionType::Output,
                       OptionType::OutputFolder})) {
      const std::string name(option->name());
      const ProgramResult result = runProgram({wordOf(command), name, ""});
      EXPECT_EQ(result.code, 2) << wordOf(command) << " " << name;
      EXPECT_THAT(result.err, HasSubstr(name + ": the value is empty")) << wordOf(command);
      ++tried;
    }
  EXPECT_GT(tried, 100u);
  for (Command command : commands)
    EXPECT_EQ(runProgram({wordOf(command), ""}).code, 2) << wordOf(command);
}

TEST(OptionValues, ListsHaveNoEmptyParts) {
  for (const char* list : {"1,,2", "1,", ",1"})
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"run", "none.onnx", "--tokens", "1", "--eos", list},
             {"run", "none.onnx", "--tokens", "1", std::string("--eos=") + list},
             {"bench", "none.onnx", "-d", list},
             {"bench", "none.onnx", std::string("-d") + list},
             {"bench", "none.onnx", "--threads", list},
             {"verify", "none.onnx", "none.onnx", "--chunks", list}}) {
      const ProgramResult result = runProgram(arguments);
      EXPECT_EQ(result.code, 2) << arguments.back();
      EXPECT_THAT(result.err, HasSubstr(std::string("'") + list + "' has an empty part"));
    }
  EXPECT_EQ(runProgram({"run", "none.onnx", "--tokens", "1", "--eos", "1,2", "--eos=3"}).code, 3);
}

TEST(OptionValues, NumbersThatFitAreTaken) {
  EXPECT_EQ(runProgram({"run", "none.onnx", "--tokens", "1", "--seed", "18446744073709551615",
                        "--temperature", "1e-3", "--top-p", ".5", "--steps", "007"})
                .code,
            3);
}

TEST(OptionValues, PassesThatArePrintedExist) {
  for (const char* option : {"--print-ir-after", "--print-ir-before"}) {
    const ProgramResult result =
        runProgram({"opt", shippedModel("kjv"), "--pipeline", "", option, "none"});
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr("there is no pass 'none'"));
  }
  EXPECT_EQ(
      runProgram({"opt", shippedModel("kjv"), "--pipeline", "normalize", "--print-ir-after", "all"})
          .code,
      0);
}

TEST(OptionValues, DefaultsOfTheTableAreThoseOfTheProgram) {
  size_t compared = 0;
  std::set<std::string> added;
  for (const OptionFacts& fact : describeOptions()) {
    added.insert(fact.command + " " + fact.name);
    for (unsigned i = 0; i < commandCount; ++i) {
      const auto command = static_cast<Command>(i);
      const OptionInfo* option = findOption(command, fact.name);
      if (fact.command != wordOf(command) || *option->defaultValue == 0 || fact.initial.empty())
        continue;
      std::string initial = fact.initial;
      // Lists are written in brackets.
      if (initial.front() == '[')
        initial = initial.substr(1, initial.size() - 2);
      EXPECT_EQ(initial, option->defaultValue) << fact.command << " " << fact.name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 40u);
  for (unsigned i = 0; i < commandCount; ++i)
    for (const OptionInfo* option : optionsOf(static_cast<Command>(i)))
      EXPECT_TRUE(added.count(std::string(wordOf(static_cast<Command>(i))) + " " +
                              std::string(option->name())) != 0)
          << "the command has no option " << option->name();
}

} // namespace
} // namespace kvopt
