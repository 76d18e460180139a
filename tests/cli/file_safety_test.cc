// No output of any command replaces a file of the model it was made from.
#include "tests/cli/cli_fixture.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <map>

namespace kvopt {
using namespace cli;

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// The contents of all files in a folder.
std::map<std::string, std::string> contentsOf(const TemporaryFolder& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    contents[entry.path().filename().string()] = folder.read(entry.path().filename().string());
  return contents;
}

class FileSafety : public testing::Test {
protected:
  void makeExternal() {
    const ProgramResult made =
        runProgram({"gen", "llama", "-o", folder.path("m.onnx"), "--layers", "1", "--hidden", "32",
                    "--heads", "2", "--vocab", "32", "--external-data", "always"});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  void makePyramid() {
    const ProgramResult made =
        runProgram({"rewrite", shippedModel("kjv"), "-o", folder.path("p.onnx"), "--to",
                    "pyramid:16", "--capacity", "48", "--verify", "off"});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  /// Expects a refusal that says so and leaves every file as it was.
  void expectRefused(const std::vector<std::string>& arguments, const std::string& message) {
    const std::map<std::string, std::string> before = contentsOf(folder);
    const ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_THAT(result.err, HasSubstr("hint: "));
    EXPECT_TRUE(contentsOf(folder) == before) << message;
  }
  TemporaryFolder folder;
};

TEST_F(FileSafety, ExternalDataIsNotReplaced) {
  makeExternal();
  const std::string model = folder.path("m.onnx");
  fs::create_hard_link(folder.path("m.onnx.data"), folder.path("hard"));
  fs::create_symlink("m.onnx.data", folder.path("soft"));
  for (const char* name : {"m.onnx.data", "hard", "soft"}) {
    const std::string path = folder.path(name);
    const std::string what = "would overwrite external data of the model '" + model + "'";
    expectRefused({"run", model, "--tokens", "1,2", "--steps", "2", "--save-cache", path},
                  path + ": --save-cache " + what);
    expectRefused({"bench", model, "-p", "2", "-n", "2", "-d", "0", "-r", "1", "--plot", path},
                  path + ": --plot " + what);
    expectRefused({"opt", model, "-o", path}, path + ": --output " + what);
    expectRefused({"opt", model, "--reproducer", path}, path + ": --reproducer " + what);
    expectRefused({"rewrite", model, "-o", path, "--to", "kvopt"}, path + ": --output " + what);
    expectRefused(
        {"rewrite", model, "-o", folder.path("x.onnx"), "--to", "kvopt", "--manifest", path},
        path + ": --manifest " + what);
    expectRefused(
        {"rewrite", model, "-o", folder.path("x.onnx"), "--to", "ort-gqa", "--genai-config", path},
        path + ": --genai-config " + what);
  }
  expectRefused({"rewrite", model, "-o", folder.path("m"), "--to", "kvopt", "--external-data",
                 "copy", "--manifest", folder.path("m.data")},
                "would write to the same file");
}

TEST_F(FileSafety, PartsOfAPyramidAreNotReplaced) {
  makePyramid();
  const std::string model = folder.path("p.onnx");
  for (const auto& [name, what] :
       std::map<std::string, std::string>{{"p.onnx", "the model"},
                                          {"p.past0.onnx", "a variant of the model"},
                                          {"p.past1.onnx", "a variant of the model"},
                                          {"p.onnx.data", "external data of the model"},
                                          {"p.kv.json", "the manifest of the model"}}) {
    const std::string path = folder.path(name);
    const std::string message = "would overwrite " + what + " '" + model + "'";
    expectRefused({"run", model, "--tokens", "1,2", "--steps", "2", "--save-cache", path}, message);
    expectRefused({"opt", model, "-o", path}, message);
    expectRefused({"bench", model, "-p", "2", "-n", "2", "-d", "0", "--plot", path}, message);
    expectRefused({"rewrite", model, "-o", path, "--to", "pyramid:16", "--capacity", "48"},
                  message);
  }
}

TEST_F(FileSafety, PiecesAreReplacedByThoseOfTheSameModelOnly) {
  const std::string model = folder.path("t.onnx");
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(runProgram({"rewrite", shippedModel("llama_gqa-ts14-eager"), "-o", model, "--to",
                          "tiles:16", "--capacity", "40"})
                  .code,
              0);
  for (const char* name : {"t.part0.onnx", "t.part2.onnx", "t.tile1.onnx"}) {
    const std::string path = folder.path(name);
    expectRefused({"opt", model, "-o", path}, "would overwrite a piece of the model '" + model);
  }
  // In the place of a piece that is to be written stands a folder.
  TemporaryFolder other;
  std::filesystem::create_directory(other.path("t.part1.onnx"));
  EXPECT_EQ(runProgram({"rewrite", shippedModel("llama_gqa-ts14-eager"), "-o", other.path("t.onnx"),
                        "--to", "tiles:16", "--capacity", "40"})
                .code,
            2);
  EXPECT_EQ(other.entryCount(), 1u);
}

TEST_F(FileSafety, APyramidMayReplaceAnEarlierOneOfTheSameModel) {
  makePyramid();
  makePyramid();
}

TEST_F(FileSafety, TheLoadedCacheAndTheTextAreInputs) {
  makeExternal();
  const std::string model = folder.path("m.onnx"), cache = folder.path("c.kv");
  ASSERT_EQ(runProgram({"run", model, "--tokens", "1", "--steps", "2", "--save-cache", cache}).code,
            0);
  expectRefused({"run", model, "--tokens", "1", "--load-cache", cache, "--save-cache", cache},
                "--save-cache would overwrite the cache of --load-cache");
  const std::string text = folder.write("t.onnxtxt", runProgram({"opt", shippedModel("kjv")}).out);
  expectRefused({"opt", text, "-o", text}, "--output would overwrite the model");
  expectRefused({"opt", text, "--reproducer", text}, "--reproducer would overwrite the model");
}

TEST_F(FileSafety, AConfigurationThatNamesTheModelIsItsFile) {
  makeExternal();
  const std::string model = folder.path("m.onnx");
  const std::string config =
      folder.write("genai_config.json", R"({"model": {"decoder": {"filename": "m.onnx"}}})");
  expectRefused({"run", model, "--tokens", "1", "--save-cache", config},
                "--save-cache would overwrite the configuration of the model");
  folder.write("genai_config.json", R"({"model": {"decoder": {"filename": "other.onnx"}}})");
  EXPECT_EQ(
      runProgram({"run", model, "--tokens", "1", "--steps", "1", "--save-cache", config}).code, 0);
}

TEST_F(FileSafety, TwoOutputsInOnePlaceAreRefused) {
  makeExternal();
  expectRefused({"run", folder.path("m.onnx"), "--tokens", "1", "--save-cache", folder.path("x"),
                 "--dump", folder.path("x")},
                "--save-cache and --dump would write to the same file");
  expectRefused(
      {"opt", folder.path("m.onnx"), "-o", folder.path("x"), "--reproducer", folder.path("./x")},
      "--output and --reproducer would write to the same file");
}

} // namespace
} // namespace kvopt
