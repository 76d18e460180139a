// Exit codes, help, and errors that a newcomer runs into.
#include "tests/cli/cli_fixture.h"

#include <fstream>

namespace kvopt {
using namespace cli;

namespace {

TEST(AppTest, HelpAndVersionAreNoErrors) {
  ProgramResult help = runProgram({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command :
       {"inspect", "explain", "rewrite", "verify", "run", "bench", "gen", "opt", "list"})
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
  EXPECT_EQ(runProgram({"rewrite", "--help"}).code, 0);
  ProgramResult version = runProgram({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("kvopt ", 0), 0u);
}

TEST(AppTest, UsageErrorsExitWithTwo) {
  std::vector<std::vector<std::string>> wrong = {
      {},
      {"frobnicate"},
      {"inspect"},
      {"inspect", "x.onnx", "--frobnicate"},
      {"inspect", "x.onnx", "--format", "yaml"},
      {"rewrite", "x.onnx", "--to", "kvopt"},
      {"rewrite", shippedModel("kjv"), "-o", "y.onnx", "--to", "nowhere"},
      {"list", "nothing"},
      {"run", shippedModel("kjv")},
      {"opt", shippedModel("kjv"), "--pipeline", "no-such-pass"},
  };
  for (const auto& arguments : wrong) {
    ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments) << result.err;
    EXPECT_NE(result.err, "");
    EXPECT_EQ(result.out, "");
  }
}

TEST(AppTest, WhatIsUnknownIsNamed) {
  struct Case {
    std::vector<std::string> arguments;
    const char* words;
  };
  // The model is missing as well; that is not what is wrong first.
  const std::vector<Case> cases = {
      {{"inspect", "--wrong"}, "unknown option '--wrong'"},
      {{"inspect", "--wrong", "x.onnx"}, "unknown option '--wrong'"},
      {{"inspect", "--wrong=3"}, "unknown option '--wrong'"},
      {{"run", "--temprature", "1"},
       "unknown option '--temprature'; did you mean '--temperature'?"},
      {{"--wrong", "inspect"}, "unknown option '--wrong'"},
      {{"--wrong"}, "unknown option '--wrong'"},
      {{"inspekt", "x.onnx"}, "unknown command 'inspekt'; did you mean 'inspect'?"},
      {{"frobnicate"}, "unknown command 'frobnicate'"},
      {{"list", "ops", "more"}, "unexpected argument 'more'"},
      {{"inspect", "--\x1b[2J"}, "unknown option '--\\x1b[2J'"},
      {{"inspect"}, "the argument 'models' is missing"},
      {{"gen", "llama"}, "--output is required"},
      {{}, "subcommand"},
  };
  for (const Case& each : cases) {
    ProgramResult result = runProgram(each.arguments);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(each.arguments);
    EXPECT_NE(result.err.find(each.words), std::string::npos)
        << testing::PrintToString(each.arguments) << result.err;
    EXPECT_NE(result.err.find("--help"), std::string::npos);
  }
}

TEST(AppTest, ErrorsAreJsonWhereThatIsRequested) {
  const nlohmann::json usage = runJson({"rewrite", "x.onnx", "--to", "kvopt"}, 2);
  EXPECT_EQ(usage["schema"], "kvopt/rewrite/1");
  EXPECT_EQ(usage["error"]["exit_code"], 2);
  EXPECT_EQ(usage["error"]["kind"], "usage");
  EXPECT_NE(usage["error"]["message"].get<std::string>().find("--output"), std::string::npos);
  const nlohmann::json missing = runJson({"inspect", "/nowhere/x.onnx"}, 3);
  EXPECT_EQ(missing["schema"], "kvopt/inspect/1");
  EXPECT_EQ(missing["error"]["exit_code"], 3);
  EXPECT_EQ(missing["error"]["kind"], "io");
  EXPECT_EQ(missing["error"]["file"], "/nowhere/x.onnx");
  EXPECT_TRUE(missing["error"]["node"].is_null());
  // The option may be spelled in one word, and need not come last.
  ProgramResult spelled = runProgram({"verify", "--format=json", "--wrong"});
  EXPECT_EQ(spelled.code, 2);
  EXPECT_EQ(nlohmann::json::parse(spelled.out)["schema"], "kvopt/verify/1");
  EXPECT_NE(spelled.err.find("--wrong"), std::string::npos);
  EXPECT_EQ(runJson({"frobnicate"}, 2)["schema"], "kvopt/error/1");
}

TEST(AppTest, VerboseNamesThePassesAndTheTime) {
  const std::string model = shippedModel("llama_gqa-ts14-eager");
  ProgramResult plain = runProgram({"inspect", model});
  EXPECT_EQ(plain.err, "");
  ProgramResult verbose = runProgram({"inspect", model, "--verbose"});
  EXPECT_EQ(verbose.out, plain.out);
  for (const char* words : {"raise-attention", "detect-sites", "inspect, in all", " ms"})
    EXPECT_NE(verbose.err.find(words), std::string::npos) << words;
  EXPECT_EQ(runProgram({"inspect", model, "--verbose", "--quiet"}).err, "");
}

TEST(AppTest, ColorsOnlyOnRequestWhereThereIsNoTerminal) {
  const std::string model = shippedModel("llama_gqa-ts14-eager");
  const std::string escape = "\x1b[";
  auto colored = [&](const std::string& text) { return text.find(escape) != std::string::npos; };
  EXPECT_FALSE(colored(runProgram({"inspect", model}).out));
  EXPECT_FALSE(colored(runProgram({"inspect", model, "--color", "never"}).out));
  EXPECT_TRUE(colored(runProgram({"inspect", model, "--color", "always"}).out));
  EXPECT_TRUE(
      colored(runProgram({"verify", model, model, "--steps", "1", "--color", "always"}).out));
  EXPECT_TRUE(colored(
      runProgram({"rewrite", model, "--dry-run", "--to", "kvopt", "--color", "always"}).out));
  EXPECT_TRUE(colored(runProgram({"inspect", "/nowhere.onnx", "--color", "always"}).err));
  EXPECT_FALSE(colored(runProgram({"inspect", "/nowhere.onnx"}).err));
}

TEST(AppTest, BadInputIsOneLineAndExitsWithThree) {
  TemporaryFolder folder;
  auto write = [&](const char* name, const std::string& contents) {
    std::string path = folder.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  };
  std::string truncated;
  {
    std::ifstream whole(shippedModel("gpt2-dynamo18-eager"), std::ios::binary);
    truncated.assign(std::istreambuf_iterator<char>(whole), {});
    ASSERT_GT(truncated.size(), 1000u);
    truncated.resize(truncated.size() / 2);
  }
  std::vector<std::string> paths = {
      folder.path() + "/missing.onnx", folder.path(), write("empty.onnx", ""),
      write("text.onnx", "This is not a model.\n"), write("truncated.onnx", truncated)};
  for (const std::string& path : paths)
    for (const char* command : {"inspect", "explain", "verify", "run"}) {
      std::vector<std::string> arguments{command, path};
      if (arguments[0] == "verify")
        arguments.push_back(path);
      if (arguments[0] == "run")
        arguments.insert(arguments.end(), {"--tokens", "1"});
      ProgramResult result = runProgram(arguments);
      EXPECT_EQ(result.code, 3) << command << " " << path << ": " << result.err;
      EXPECT_EQ(countLines(result.err), 1u) << result.err;
      EXPECT_NE(result.err.find(path), std::string::npos) << result.err;
    }
}

TEST(AppTest, ListKnowsEveryKind) {
  for (const char* what :
       {"passes", "rules", "targets", "ops", "kernels", "reasons", "options", "manifest"}) {
    ProgramResult result = runProgram({"list", what});
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out, "") << what;
    nlohmann::json json = runJson({"list", what});
    EXPECT_EQ(json["schema"], "kvopt/list/1");
    if (std::string(what) == "targets") // they are in a table of forms
      continue;
    // A reason has its meaning, what to do and an example on lines of their own.
    size_t lines = std::string(what) == "reasons" ? 4 : 1;
    EXPECT_EQ(json[what].size() * lines, countLines(result.out));
  }
}

TEST(AppTest, KernelsOfAttentionAreListedByRank) {
  std::string out = runProgram({"list", "kernels"}).out;
  size_t decode = out.find("attention/decode"), tiled = out.find("attention/tiled");
  EXPECT_LT(out.find("attention/prefill"), decode);
  EXPECT_LT(decode, tiled);
  EXPECT_NE(tiled, std::string::npos);
}

TEST(AppTest, ReasonsAreDocumented) {
  nlohmann::json json = runJson({"list", "reasons"});
  for (const nlohmann::json& reason : json["reasons"])
    for (const char* key : {"name", "text", "remedy", "example", "hint"})
      EXPECT_NE(reason[key].get<std::string>(), "") << reason;
  ProgramResult page = runProgram({"list", "reasons", "--markdown"});
  EXPECT_EQ(page.code, 0);
  EXPECT_NE(page.out.find("## cache-escapes"), std::string::npos);
  EXPECT_EQ(runProgram({"list", "rules", "--markdown"}).code, 2);
  EXPECT_EQ(runProgram({"list", "reasons", "--markdown", "--format", "json"}).code, 2);
}

} // namespace
} // namespace kvopt
