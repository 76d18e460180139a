// Models whose every text is hostile: no command passes it to the terminal, nor into JSON or SVG.
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/op.h"
#include "support/escape.h"
#include "tests/cli/decoder_text.h"
#include "tests/cli/report/xml_check.h"

#include <fstream>
#include <sstream>

namespace kvopt {
using namespace cli;
using namespace ir;

namespace {

/// Window title, bell, carriage return, a line that looks like ours, C1, bidirectional and
/// invisible characters, and a byte that is not UTF-8.
const std::string hostile =
    "\x1b]0;t\a\r\nkvopt: forged\n\u009b2J\u0085\u202e\u200b\u2028\x7f\xff\\x1b";

/// Attention that is matched, that is missed, and that escapes, and an operator that is unknown.
std::string writeHostileModel(const TemporaryFolder& folder, const std::string& name) {
  OpRegistry ops;
  registerAll(ops);
  const std::string plain =
      writeDecoder(folder, name + "_plain",
                   {LayerSpelling::Plain, LayerSpelling::Gated, LayerSpelling::Escapes});
  auto model = importModel(plain, ops);
  EXPECT_TRUE(static_cast<bool>(model)) << llvm::toString(model.takeError());
  Graph& graph = (*model)->graph();
  graph.setName("g" + hostile);
  std::vector<Value*> values;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    values.push_back(input.get());
  int number = 0;
  for (Node& node : graph.nodes()) {
    node.setName("n" + std::to_string(number++) + hostile);
    for (Value& result : node.results())
      values.push_back(&result);
  }
  for (Value* value : values)
    graph.rename(*value, value->name().str() + hostile);
  (*model)->producerName = (*model)->docString = (*model)->domain = hostile;
  (*model)->metadata.push_back({"k" + hostile, hostile});
  (*model)->opsets["d" + hostile] = 1;
  const std::string path = folder.path(name + "\u202e.onnx");
  llvm::Error error = exportModel(**model, path);
  EXPECT_FALSE(static_cast<bool>(error)) << llvm::toString(std::move(error));
  return path;
}

std::string withoutColors(std::string text) {
  for (const char* code : {"\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"})
    for (size_t at; (at = text.find(code)) != std::string::npos;)
      text.erase(at, std::string_view(code).size());
  return text;
}

void expectSafe(const std::string& text, bool isColored, const std::string& where) {
  const std::string plain = isColored ? withoutColors(text) : text;
  EXPECT_FALSE(hasUnsafeCharacters(plain)) << where << "\n" << escapedLines(plain);
  EXPECT_EQ(("\n" + plain).find("\nkvopt: forged"), std::string::npos) << where << "\n" << plain;
}

class HostileText : public testing::Test {
protected:
  /// Runs the command plainly and with colors. Whatever it does, what it prints is safe.
  ProgramResult run(std::vector<std::string> arguments) {
    std::string where = "kvopt";
    for (const std::string& argument : arguments)
      where += " " + escaped(argument);
    ProgramResult plain = runProgram(arguments);
    expectSafe(plain.out, false, where);
    expectSafe(plain.err, false, where);
    EXPECT_NE(plain.code, 5) << where << plain.err;
    arguments.insert(arguments.end(), {"--color", "always"});
    ProgramResult colored = runProgram(arguments);
    expectSafe(colored.out, true, where);
    expectSafe(colored.err, true, where);
    return plain;
  }

  TemporaryFolder folder;
  std::string model = writeHostileModel(folder, "m");
};

TEST_F(HostileText, NoCommandPrintsIt) {
  const std::string other = writeHostileModel(folder, "other");
  const std::string output = folder.path("out\u202e.onnx");
  for (const char* format : {"text", "json"}) {
    auto with = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), {"--format", format});
      return arguments;
    };
    EXPECT_EQ(run(with({"inspect", model})).code, 0);
    EXPECT_EQ(run(with({"inspect", model, other, folder.path("none\x1b.onnx")})).code, 3);
    EXPECT_EQ(
        run(with({"explain", model, "--to", "kvopt", "--rule", "raise-spelled-attention"})).code,
        0);
    for (const char* target : {"kvopt", "ort-gqa", "onnx24", "blocks", "primitive"})
      for (const char* require : {"any", "all"})
        run(with({"rewrite", model, "-o", output, "--to", target, "--require", require, "-v"}));
    run(with({"rewrite", model, "-o", output, "--to", "primitive", "--require", "any", "--verify",
              "off"}));
    run(with({"verify", model, other}));
    run(with({"verify", model, "--reference", folder.path("none\u202e")}));
    run(with({"run", model, "--tokens", "1", "--steps", "1", "--stats", "-v"}));
    run(with({"bench", model, "-p", "1", "-n", "1", "-d", "0", "-r", "1"}));
    EXPECT_EQ(run(with({"diff", model, output})).code, 0);
    run(with({"opt", model, "--pipeline", "recover", "--explain", "--print-ir-after", "all"}));
    run(with({"list", "no\x1bsuch"}));
    run(with({"gen", "no\x1bsuch", "-o", output}));
    run(with({"inspect", "--no\u202e"}));
  }
  const ProgramResult drawing = run({"diff", model, output, "--format", "svg"});
  EXPECT_EQ(drawing.code, 0) << drawing.err;
  EXPECT_EQ(XmlCheck(drawing.out).problem(), "");
  EXPECT_EQ(run({"rewrite", model, "-o", output, "--to", "kvopt", "--require", "any", "--verify",
                 "off", "--print-ir-after", "all"})
                .code,
            0);
}

TEST_F(HostileText, TheTextFormKeepsIt) {
  const std::string text = folder.path("m.onnxtxt");
  const ProgramResult printed = run({"opt", model, "--pipeline", ""});
  ASSERT_EQ(printed.code, 0) << printed.err;
  std::ofstream(text, std::ios::binary) << printed.out;
  const ProgramResult again = run({"opt", text, "--pipeline", ""});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, printed.out);
  const std::string back = folder.path("back.onnx");
  ASSERT_EQ(runProgram({"opt", text, "--pipeline", "", "-o", back}).code, 0);
  const nlohmann::json difference = runJson({"diff", model, back});
  EXPECT_TRUE(difference["same"].get<bool>())
      << difference.dump(2, ' ', true, nlohmann::json::error_handler_t::replace);
}

} // namespace
} // namespace kvopt
