// Values of all options of all commands are read whole and in range.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

#include <sstream>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;

struct OptionLine {
  std::string name; ///< with dashes
  std::string type; ///< INT, UINT, FLOAT, TEXT, or others
};

/// The options of a command that take a value, out of its help.
std::vector<OptionLine> optionsOf(const std::string& command) {
  std::vector<OptionLine> options;
  std::istringstream help(runProgram({command, "--help"}).out);
  for (std::string line; std::getline(help, line);) {
    std::istringstream words(line);
    OptionLine option;
    words >> option.name >> option.type;
    if (line.rfind("  -", 0) != 0)
      continue;
    option.name = option.name.substr(option.name.find("--"));
    option.name = option.name.substr(0, option.name.find(','));
    for (const char* type : {"INT", "UINT", "FLOAT", "TEXT"})
      if (option.type.rfind(type, 0) == 0 && option.type.rfind("TEXT:{", 0) != 0) {
        option.type = type;
        options.push_back(option);
        break;
      }
  }
  return options;
}

constexpr const char* commands[] = {"inspect", "explain", "rewrite", "verify", "run",
                                    "bench",   "diff",    "gen",     "opt"};

TEST(OptionValues, NumbersAreReadWholeAndInRange) {
  size_t tried = 0;
  for (const char* command : commands)
    for (const OptionLine& option : optionsOf(command)) {
      if (option.type == "TEXT")
        continue;
      std::vector<std::string> wrong = {"",    " 1",  "1 ",   "1x",    "x",    "-1",     "+1",
                                        "nan", "inf", "-inf", "1e400", "0x10", "\x1b[2J"};
      if (option.type != "FLOAT")
        wrong.insert(wrong.end(), {"1.0", "1e3", "99999999999999999999", "18446744073709551616"});
      for (const std::string& value : wrong) {
        const ProgramResult result = runProgram({command, option.name, value});
        EXPECT_EQ(result.code, 2) << command << " " << option.name << " '" << value << "'";
        EXPECT_THAT(result.err, HasSubstr(option.name)) << command << " '" << value << "'";
        EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
        ++tried;
      }
    }
  EXPECT_GT(tried, 300u);
}

TEST(OptionValues, WordsAreNotEmpty) {
  size_t tried = 0;
  for (const char* command : commands)
    for (const OptionLine& option : optionsOf(command)) {
      if (option.type != "TEXT" || option.name == "--pipeline")
        continue;
      const ProgramResult result = runProgram({command, option.name, ""});
      EXPECT_EQ(result.code, 2) << command << " " << option.name;
      EXPECT_THAT(result.err, HasSubstr(option.name + ": the value is empty")) << command;
      ++tried;
    }
  EXPECT_GT(tried, 15u);
  for (const char* command : commands)
    EXPECT_EQ(runProgram({command, ""}).code, 2) << command;
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

} // namespace
} // namespace kvopt
