// Every option that takes a path, from the table of options: no output replaces an input, or
// anything but a regular file.
#include "driver/toolkit.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "support/output_file.h"
#include "tests/cli/cli_fixture.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <map>
#include <set>
#include <sstream>
#include <sys/stat.h>

namespace kvopt {
using namespace cli;

namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

bool isInput(const OptionFacts& option) {
  return option.path == PathUse::Model || option.path == PathUse::Input;
}
bool isOutput(const OptionFacts& option) { return option.path && !isInput(option); }
bool isArgument(const OptionFacts& option) { return option.name[0] != '-'; }

/// The options of each command that writes files.
std::map<std::string, std::vector<OptionFacts>> writingCommands() {
  std::map<std::string, std::vector<OptionFacts>> commands;
  for (OptionFacts& option : describeOptions())
    commands[option.command].push_back(std::move(option));
  std::erase_if(commands, [](const auto& command) {
    return std::none_of(command.second.begin(), command.second.end(), isOutput);
  });
  EXPECT_GE(commands.size(), 7u);
  return commands;
}

std::string bytesOf(const fs::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

/// Everything beneath a folder: contents of files, targets of links, kinds of others.
std::map<std::string, std::string> entriesOf(const std::string& folder) {
  std::map<std::string, std::string> entries;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::string& what = entries[entry.path().string()];
    if (entry.is_symlink())
      what = "link to " + fs::read_symlink(entry.path()).string();
    else if (entry.is_regular_file())
      what = bytesOf(entry.path());
    else
      what = entry.is_directory() ? "folder" : "special";
  }
  return entries;
}

/// What a command needs besides its paths.
std::vector<std::string> otherArguments(const std::string& command) {
  if (command == "run")
    return {"--tokens", "1,2", "--steps", "1"};
  if (command == "gen")
    return {"llama", "--layers", "1", "--hidden", "8", "--heads", "2", "--vocab", "8"};
  if (command == "bench")
    return {"-p", "1", "-n", "1", "-d", "0", "-r", "1", "-t", "1"};
  if (command == "opt" || command == "check")
    return {};
  if (command == "reduce")
    return {"--while", "grep -q Softmax {}"};
  return {"--to", "ort-gqa"}; // for --genai-config
}

class PathOptions : public testing::Test {
protected:
  /// A small decoder.
  std::string makeModel(const std::string& name = "m.onnx") {
    const std::string path = folder.path(name);
    const ProgramResult made =
        runProgram({"gen", "llama", "-o", path, "--layers", "1", "--hidden", "32", "--heads", "2",
                    "--vocab", "32", "--external-data", "always"});
    EXPECT_EQ(made.code, 0) << made.err;
    return path;
  }

  /// A folder in which a command writes what the test does not point elsewhere.
  std::string freshPath(const std::string& name) {
    fs::create_directory(folder.path("fresh"));
    return folder.path("fresh/" + name);
  }

  /// The command with the given values of options; required paths that are not given get `model`,
  /// or a new file.
  std::vector<std::string> commandLine(const std::string& command,
                                       const std::vector<OptionFacts>& options,
                                       const std::map<std::string, std::string>& values,
                                       const std::string& model) {
    std::vector<std::string> words = {command};
    for (const OptionFacts& option : options) {
      std::string value;
      if (const auto given = values.find(option.name); given != values.end())
        value = given->second;
      else if (option.path == PathUse::Model && option.isRequired)
        value = model;
      else if (option.name == "--output" && isOutput(option))
        value = freshPath("out.onnx");
      if (value.empty())
        continue;
      if (!isArgument(option))
        words.push_back(option.name);
      words.push_back(value);
    }
    for (std::string& word : otherArguments(command))
      words.push_back(std::move(word));
    return words;
  }

  /// Expects exit code 2, one of the messages, and that nothing changes.
  void expectRefused(const std::vector<std::string>& words,
                     const testing::Matcher<std::string>& message) {
    const auto before = entriesOf(folder.path());
    const ProgramResult result = runProgram(words);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(words) << result.out << result.err;
    EXPECT_THAT(result.err, message) << testing::PrintToString(words);
    EXPECT_TRUE(entriesOf(folder.path()) == before) << testing::PrintToString(words);
  }

  /// Points the output at the file itself, at a hard link, and at a symbolic link.
  void expectOverwritingRefused(const std::string& command, const std::vector<OptionFacts>& options,
                                const OptionFacts& output,
                                std::map<std::string, std::string> values, const std::string& file,
                                const std::string& model) {
    fs::create_hard_link(file, folder.path("hard"));
    fs::create_symlink(file, folder.path("soft"));
    for (const std::string& path : {file, folder.path("hard"), folder.path("soft")}) {
      values[output.name] = path;
      expectRefused(commandLine(command, options, values, model),
                    HasSubstr(path + ": " + output.name + " would overwrite "));
      ++refused;
    }
    fs::remove(folder.path("hard"));
    fs::remove(folder.path("soft"));
  }

  TemporaryFolder folder;
  size_t refused = 0;
};

/// Options whose values are texts that are not paths.
const std::set<std::string> wordOptions = {
    "--capacity",        "--disable",        "--elements", "--input", "--layers",
    "--pipeline",        "--print-ir-after", "--rule",     "--state", "--stop",
    "--print-ir-before", "--text",           "--tokens",   "--while"};

TEST_F(PathOptions, EveryOptionThatTakesAnyTextIsAPathOrAWord) {
  std::set<std::string> seen;
  size_t paths = 0;
  for (const OptionFacts& option : describeOptions()) {
    paths += option.path ? 1 : 0;
    if (!option.takesFreeText || option.path)
      continue;
    seen.insert(option.name);
    EXPECT_TRUE(wordOptions.count(option.name) != 0)
        << "kvopt " << option.command << " " << option.name
        << " takes any text: give it the type of a path in driver/options/option_table.cc if it is "
           "one, and add it to this "
           "test's list if it is not";
  }
  EXPECT_EQ(seen, wordOptions);
  EXPECT_GE(paths, 30u);
}

TEST_F(PathOptions, NoOutputReplacesAFileThatAnOptionNames) {
  const std::string model = makeModel();
  for (const auto& [command, options] : writingCommands())
    for (const OptionFacts& output : options)
      for (const OptionFacts& input : options) {
        if (!isOutput(output) || !isInput(input))
          continue;
        if (output.name == "--certificate" && input.name == "--against")
          continue; // they exclude each other
        const std::string file = folder.write("input", "1 2 3");
        expectOverwritingRefused(command, options, output, {{input.name, file}}, file, model);
      }
  // Rewriting commands have three outputs; of them, `rewrite` has three inputs.
  EXPECT_GE(refused, 3u * (3 * 5 + 2 * 3 + 1 + 2));
}

/// Names of the regular files in a folder.
std::vector<std::string> filesIn(const std::string& path) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file())
      files.push_back(entry.path().filename().string());
  return files;
}

class FilesOfModels : public PathOptions {
protected:
  /// Points every output of every command at every file in the folder of the model, for each option
  /// that may name the model.
  void expectAllRefused(const std::string& model, size_t leastFiles) {
    const std::string plain = makeModel("plain.onnx");
    const std::string itsFolder = fs::path(model).parent_path().string();
    const std::vector<std::string> files = filesIn(itsFolder);
    EXPECT_GE(files.size(), leastFiles) << testing::PrintToString(files);
    for (const auto& [command, options] : writingCommands())
      for (const OptionFacts& output : options)
        for (const OptionFacts& input : options) {
          if (!isOutput(output) || input.path != PathUse::Model)
            continue;
          for (const std::string& file : files)
            expectOverwritingRefused(command, options, output, {{input.name, model}},
                                     itsFolder + "/" + file, plain);
        }
    EXPECT_GE(refused, 3 * 14 * leastFiles);
  }

  /// Rewrites a model into the folder "model".
  std::string rewritten(const std::string& from, const std::vector<std::string>& target) {
    fs::create_directory(folder.path("model"));
    std::string path = folder.path("model/m.onnx");
    std::vector<std::string> words = {"rewrite",         from,   "-o",  path, "--verify", "off",
                                      "--external-data", "copy", "--to"};
    words.insert(words.end(), target.begin(), target.end());
    const ProgramResult made = runProgram(words);
    EXPECT_EQ(made.code, 0) << made.err;
    return path;
  }

  /// Writes the model again with its weights in a file next to it.
  void moveWeightsOut(const std::string& name) {
    const driver::Toolkit toolkit;
    auto model = llvm::cantFail(ir::importModel(folder.path("model/" + name), toolkit.ops));
    ir::ExportOptions options;
    options.externalFile = name + ".data";
    options.externalBytes = 1;
    fs::create_directory(folder.path("moved"));
    OutputFiles files;
    ir::FamilyExport family(options, files);
    llvm::cantFail(family.add(*model, folder.path("moved/" + name)));
    llvm::cantFail(family.finish());
    llvm::cantFail(files.commit());
    for (const std::string& file : {name, options.externalFile})
      fs::rename(folder.path("moved/" + file), folder.path("model/" + file));
    fs::remove(folder.path("moved"));
  }
};

TEST_F(FilesOfModels, ExternalData) {
  fs::create_directory(folder.path("model"));
  expectAllRefused(makeModel("model/m.onnx"), 2);
}

TEST_F(FilesOfModels, Variants) {
  expectAllRefused(rewritten(makeModel("wide.onnx"), {"pyramid:16", "--capacity", "32"}), 5);
}

TEST_F(FilesOfModels, Pieces) {
  expectAllRefused(rewritten(makeModel("wide.onnx"), {"tiles:16", "--capacity", "40"}), 6);
}

TEST_F(FilesOfModels, TheFirstStepAndItsWeights) {
  const std::string encoded = folder.path("encoded.onnx");
  const std::string text = std::string(KVOPT_SOURCE_DIR) + "/tests/oracle/first_step.onnxtxt";
  ASSERT_EQ(runProgram({"opt", text, "--pipeline", "infer-shapes,detect-sites,lower{to=primitive}",
                        "-o", encoded})
                .code,
            0);
  fs::create_directory(folder.path("model"));
  const std::string model = folder.path("model/m.onnx");
  const ProgramResult made = runProgram({"add-cache", encoded, "-o", model});
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_TRUE(fs::exists(folder.path("model/m.first.onnx")));
  moveWeightsOut("m.first.onnx");
  expectAllRefused(model, 4);
}

/// Things that are not regular files, and not folders that may be filled.
struct Special {
  const char* what;
  void (*make)(const std::string& path);
};
const Special specials[] = {
    {"a link to a file", [](const std::string& path) { fs::create_symlink("other", path); }},
    {"a dangling link", [](const std::string& path) { fs::create_symlink("nowhere", path); }},
    {"a link to a descriptor",
     [](const std::string& path) { fs::create_symlink("/proc/self/fd/1", path); }},
    {"a link to a device", [](const std::string& path) { fs::create_symlink("/dev/null", path); }},
    {"a pipe", [](const std::string& path) { EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0); }},
    {"a folder",
     [](const std::string& path) {
       fs::create_directory(path);
       std::ofstream(path + "/own") << "x";
     }},
};

TEST_F(PathOptions, OnlyRegularFilesAndNewNamesAreWritten) {
  const std::string model = makeModel();
  folder.write("other", "kept");
  for (const auto& [command, options] : writingCommands())
    for (const OptionFacts& output : options)
      for (const Special& special : specials) {
        if (!isOutput(output))
          continue;
        SCOPED_TRACE(special.what);
        const std::string path = folder.path("special");
        special.make(path);
        freshPath("");
        expectRefused(commandLine(command, options, {{output.name, path}}, model),
                      AnyOf(HasSubstr(path + ": is a symbolic link"),
                            HasSubstr(path + ": exists and is not a"),
                            HasSubstr(path + ": the folder is not empty")));
        fs::remove_all(path);
      }
}

TEST_F(PathOptions, OutputsThatFollowFromOthersAreWrittenAlike) {
  const std::string model = makeModel();
  folder.write("other", "kept");
  fs::create_directory(folder.path("fresh"));
  const std::string out = folder.path("fresh/o.onnx");
  const std::vector<std::string> rewrite = {"rewrite", model, "-o", out, "--verify", "off"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), rewrite.begin(), rewrite.end());
    return more;
  };
  const std::vector<std::pair<const char*, std::vector<std::string>>> cases = {
      {"o.onnx.data",
       {"gen", "llama", "-o", out, "--layers", "1", "--hidden", "8", "--heads", "2", "--vocab", "8",
        "--external-data", "always"}},
      {"o.kv.json", with({"--to", "kvopt", "--external-data", "copy"})},
      {"o.onnx.data", with({"--to", "kvopt", "--external-data", "copy"})},
      {"o.past0.onnx", with({"--to", "pyramid:16", "--capacity", "32", "--external-data", "copy"})},
      {"o.tile0.onnx", with({"--to", "tiles:16", "--capacity", "40", "--external-data", "copy"})},
  };
  for (const auto& [name, words] : cases)
    for (const Special& special : specials) {
      SCOPED_TRACE(std::string(name) + ": " + special.what);
      special.make(folder.path(std::string("fresh/") + name));
      expectRefused(words, HasSubstr("it is not replaced"));
      fs::remove_all(folder.path(std::string("fresh/") + name));
    }
}

TEST_F(PathOptions, ADryRunWritesNothingAndReplacesNothing) {
  const std::string model = makeModel();
  const auto before = entriesOf(folder.path());
  const ProgramResult result =
      runProgram({"rewrite", model, "-o", model, "--to", "kvopt", "--dry-run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(entriesOf(folder.path()) == before);
}

TEST_F(PathOptions, AModelThatCannotBeReadKeepsItsFiles) {
  const std::string model = makeModel();
  makeModel("plain.onnx");
  // What precedes the damage names the external data.
  const std::string bytes = folder.read("m.onnx");
  folder.write("m.onnx", bytes + std::string(16, '\xff'));
  ASSERT_EQ(runProgram({"inspect", model}).code, 3);
  expectRefused({"bench", model, folder.path("plain.onnx"), "-p", "1", "-n", "1", "-d", "0",
                 "--plot", folder.path("m.onnx.data")},
                HasSubstr("--plot would overwrite external data of the model"));
}

} // namespace
} // namespace kvopt
