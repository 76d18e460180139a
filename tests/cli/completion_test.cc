// Completion: bash is asked what it would offer; the other scripts are read.
#include "cli/support/completion_script.h"

#include "tests/cli/cli_fixture.h"

#include <array>
#include <cstdio>
#include <filesystem>

namespace kvopt {
using namespace cli;

namespace {

/// What `bash script arguments…` prints.
std::string runBash(const std::string& script) {
  std::string output;
  FILE* pipe = ::popen(("bash '" + script + "' 2>&1").c_str(), "r");
  if (!pipe)
    return "no bash";
  std::array<char, 256> buffer{};
  while (size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), read);
  EXPECT_EQ(::pclose(pipe), 0) << output;
  return output;
}

TEST(Completion, BashOffersWhatTheProgramHas) {
  TemporaryFolder folder;
  ProgramResult script = runProgram({"completion", "bash"});
  ASSERT_EQ(script.code, 0);
  std::string path = folder.write("completion.bash", script.out);
  auto offers = [&](const std::string& words) {
    return runBash(folder.write("ask.bash", "source '" + path + "'\nCOMP_WORDS=(" + words +
                                                ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_kvopt\n"
                                                "printf '%s ' \"${COMPREPLY[@]}\"\n"));
  };
  EXPECT_EQ(offers("kvopt be"), "bench ");
  EXPECT_EQ(offers("kvopt bench --pl"), "--plot ");
  EXPECT_EQ(offers("kvopt bench m.onnx -o ''"), "md csv json ");
  EXPECT_EQ(offers("kvopt run m.onnx --mode s"), "shared stateful ");
  EXPECT_EQ(offers("kvopt list re"), "reasons ");
  EXPECT_EQ(offers("kvopt rewrite m.onnx --cache b"), "buffer blocks ");
  EXPECT_EQ(offers("kvopt rewrite m.onnx --rows int"), "int8 int4 ");
  EXPECT_EQ(offers("kvopt rewrite m.onnx --to on"), "onnx onnx24 onnx24-ring onnx23 ");
  EXPECT_EQ(offers("kvopt explain m.onnx --split t"), "tiles ");
  EXPECT_EQ(offers("kvopt inspect m.onnx --he"), "--help ");
  EXPECT_EQ(offers("kvopt completion z"), "zsh ");
  EXPECT_EQ(offers("kvopt help ins"), "inspect ");
  EXPECT_EQ(offers("kvopt explain m.onnx --rule raise-g"), "raise-group-query-attention ");
  EXPECT_EQ(offers("kvopt opt m.onnx --disable strip-g"),
            "strip-gqa-broadcast strip-gqa-broadcast ");
  EXPECT_EQ(offers("kvopt opt m.onnx --print-ir-after al"), "all ");
  EXPECT_EQ(offers("kvopt opt m.onnx --pipeline norm"), "normalize ");
  // Lists, and values after '=', where readline breaks words.
  EXPECT_EQ(offers("kvopt verify --references --forms exported,sh"), "exported,shared ");
  EXPECT_EQ(offers("kvopt opt m.onnx --pipeline normalize,detect-s"), "normalize,detect-sites ");
  EXPECT_EQ(offers("kvopt rewrite m.onnx --rows = int"), "int8 int4 ");
  EXPECT_EQ(offers("kvopt rewrite m.onnx --verify ="), "auto off check quick full ");
  // Files of models; for others, the shell's own completion follows.
  folder.write("model.onnx", "");
  folder.write("model.txt", "");
  std::filesystem::create_directory(folder.path("models"));
  const std::string here = folder.path("m");
  EXPECT_EQ(offers("kvopt run " + here),
            folder.path("models") + " " + folder.path("model.onnx") + " ");
  EXPECT_EQ(offers("kvopt run m.onnx --draft " + here),
            folder.path("models") + " " + folder.path("model.onnx") + " ");
  EXPECT_EQ(offers("kvopt opt " + here), " ");
  EXPECT_EQ(offers("kvopt run --load-cache c"), " ");
  std::string commands = offers("kvopt ''");
  for (const char* command : {"inspect ", "explain ", "rewrite ", "verify ", "run ", "opt "})
    EXPECT_NE(commands.find(command), std::string::npos) << commands;
}

const std::vector<CompletionCommand> sample = {
    {"go",
     "Do it: [now], don't wait",
     {{{}, "what", true, {"a", "b"}},
      {{"-o", "--output"}, "isn't [optional]: \\", true, {}},
      {{"--kind"}, "kind", true, {"x", "y"}},
      {{"--list"}, "list", true, {"x", "y"}, true},
      {{"--model"}, "model", true, {}, false, "onnx"},
      {{"--flag"}, "flag", false, {}}}}};

TEST(Completion, Zsh) {
  std::string script = zshCompletion(sample);
  EXPECT_EQ(script.rfind("#compdef kvopt\n", 0), 0u);
  for (const char* line :
       {"'go:Do it\\: \\[now\\], don'\\''t wait'", "'*:argument:(a b)'",
        "'*--output[isn'\\''t \\[optional\\]\\: \\\\]:value:_files'", "'*-o[",
        "'*--kind[kind]:value:(x y)'", "'*--list[list]:value:_sequence compadd - x y'",
        "'*--model[model]:value:_files -g \"*.onnx\"'", "'*--flag[flag]'"})
    EXPECT_NE(script.find(line), std::string::npos) << line << "\n" << script;
}

TEST(Completion, Fish) {
  std::string script = fishCompletion(sample);
  for (const char* line :
       {"complete -c kvopt -f -n __fish_use_subcommand -a go -d 'Do it: [now], don'\\''t wait'\n",
        "complete -c kvopt -n '__fish_seen_subcommand_from go' -x -a 'a b' -d 'what'\n",
        " -s o -l output -r -d 'isn'\\''t [optional]: \\\\'\n", " -l kind -x -a 'x y' -d 'kind'\n",
        " -l list -x -a '(__fish_append , x y)' -d 'list'\n",
        " -l model -k -x -a '(__fish_complete_suffix .onnx)' -d 'model'\n", " -l flag -d 'flag'\n"})
    EXPECT_NE(script.find(line), std::string::npos) << line << "\n" << script;
}

TEST(Completion, EveryShellAndNoOther) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    ProgramResult result = runProgram({"completion", shell});
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("save-cache"), std::string::npos) << shell;
  }
  EXPECT_EQ(runProgram({"completion", "tcsh"}).code, 2);
  EXPECT_EQ(runProgram({"completion"}).code, 2);
}

} // namespace
} // namespace kvopt
