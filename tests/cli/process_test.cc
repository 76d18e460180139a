// Streams that are closed or full, and files that become shorter while they are mapped.
#include "cli/process.h"

#include "support/mapped_file.h"
#include "tests/cli/cli_fixture.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kvopt {
using namespace cli;

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Runs the program in a process of its own after `arrange`; gives its exit code, or minus the
/// signal that ended it.
int exitCodeOf(const std::vector<std::string>& arguments, const std::function<void()>& arrange) {
  const pid_t child = ::fork();
  if (child == 0) {
    arrange();
    prepareProcess();
    std::vector<const char*> argv{"kvopt"};
    for (const std::string& argument : arguments)
      argv.push_back(argument.c_str());
    ::_exit(runApp(static_cast<int>(argv.size()), argv.data()));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void redirect(int stream, const char* path) {
  const int file = ::open(path, O_WRONLY);
  ::dup2(file, stream);
  ::close(file);
}

TEST(Process, StandardErrorNeverChangesTheExitCode) {
  const std::string model = shippedModel("kjv");
  const std::vector<std::string> good = {"run", model, "--text", "a", "--steps", "2", "--stats"};
  const std::vector<std::string> bad = {"inspect", "none.onnx"};
  const std::vector<std::string> wrong = {"run", model, "--seed", "-1"};
  auto nowhere = [] { redirect(STDOUT_FILENO, "/dev/null"); };
  for (const auto& arrange : std::initializer_list<std::function<void()>>{
           [] { ::close(STDERR_FILENO); }, [] { redirect(STDERR_FILENO, "/dev/full"); },
           [] {
             int ends[2];
             ASSERT_EQ(::pipe(ends), 0);
             ::close(ends[0]);
             ::dup2(ends[1], STDERR_FILENO);
           }}) {
    auto both = [&] {
      nowhere();
      arrange();
    };
    EXPECT_EQ(exitCodeOf(good, both), 0);
    EXPECT_EQ(exitCodeOf(bad, both), 3);
    EXPECT_EQ(exitCodeOf(wrong, both), 2);
  }
}

TEST(Process, ResultsThatCannotBeWrittenAreAnError) {
  auto quiet = [] { redirect(STDERR_FILENO, "/dev/null"); };
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"list", "ops"}, {"--help"}, {"run", "--help"}})
    for (const auto& arrange : std::initializer_list<std::function<void()>>{
             [] { ::close(STDOUT_FILENO); }, [] { redirect(STDOUT_FILENO, "/dev/full"); }})
      EXPECT_EQ(exitCodeOf(arguments,
                           [&] {
                             quiet();
                             arrange();
                           }),
                3)
          << arguments.back();
}

/// Makes stdout a pipe that has no reader.
void closePipeOfResults() {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  ::dup2(ends[1], STDOUT_FILENO);
  redirect(STDERR_FILENO, "/dev/null");
}

TEST(Process, AClosedPipeEndsTheProcessAsItEndsOthers) {
  const std::string first = shippedModel("llama_gqa-ts14-eager");
  const std::string second = shippedModel("qwen2-dynamo23-sdpa");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"list", "ops"},
        {"--help"},
        {"run", "--help"},
        {"inspect", first, "--format", "json"},
        {"inspect", "none.onnx", "--format", "json"},
        {"verify", first, second, "--prompt", "4", "--steps", "1"},
        // It ends with the first token.
        {"run", shippedModel("kjv"), "--text", "a", "--steps", "100000000"}}) {
    EXPECT_EQ(exitCodeOf(arguments,
                         [] {
                           std::signal(SIGPIPE, SIG_DFL);
                           closePipeOfResults();
                         }),
              -SIGPIPE)
        << arguments.front();
  }
}

TEST(Process, AClosedPipeIsAnErrorWhereItsSignalIsIgnored) {
  EXPECT_EQ(exitCodeOf({"list", "ops"},
                       [] {
                         std::signal(SIGPIPE, SIG_IGN);
                         closePipeOfResults();
                       }),
            3);
}

TEST(Process, AClosedPipeLeavesWhatWasWritten) {
  TemporaryFolder folder;
  EXPECT_EQ(exitCodeOf({"gen", "llama", "-o", folder.path("m.onnx"), "--vocab", "64"},
                       [] {
                         std::signal(SIGPIPE, SIG_DFL);
                         closePipeOfResults();
                       }),
            -SIGPIPE);
  EXPECT_EQ(runProgram({"inspect", folder.path("m.onnx")}).code, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Process, AVerdictThatCannotBePrintedStays) {
  EXPECT_EQ(exitCodeOf({"verify", shippedModel("llama_gqa-ts14-eager"),
                        shippedModel("qwen2-dynamo23-sdpa"), "--prompt", "4", "--steps", "1"},
                       [] {
                         redirect(STDERR_FILENO, "/dev/null");
                         redirect(STDOUT_FILENO, "/dev/full");
                       }),
            1);
}

TEST(Process, FilesNeverTakeThePlaceOfStandardStreams) {
  TemporaryFolder folder;
  const std::string cache = folder.path("c.kv");
  const ProgramResult made = runProgram(
      {"run", shippedModel("kjv"), "--text", "a", "--steps", "2", "--save-cache", cache});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string expected = folder.read("c.kv");
  fs::remove(cache);
  const int code = exitCodeOf(
      {"run", shippedModel("kjv"), "--text", "a", "--steps", "2", "--save-cache", cache}, [] {
        for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
          ::close(stream);
      });
  EXPECT_EQ(code, 3); // The text could not be printed.
  EXPECT_TRUE(folder.read("c.kv") == expected);
}

TEST(ProcessDeathTest, AMappedFileThatBecomesShorterIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TemporaryFolder folder;
  const std::string path = folder.write("weights", std::string(1 << 16, 'w'));
  auto read = [&] {
    prepareProcess();
    const auto file = llvm::cantFail(MappedFile::open(path));
    fs::resize_file(path, 0);
    volatile std::byte byte = file->bytes()[5000];
    ::_exit(static_cast<int>(byte));
  };
  EXPECT_EXIT(read(), testing::ExitedWithCode(3),
              "kvopt: error: .*weights: the file became shorter while it was read");
}

TEST(Process, ATruncatedFileIsAJsonErrorToo) {
  TemporaryFolder folder;
  const std::string path = folder.write("a \"name\"", std::string(1 << 16, 'w'));
  const pid_t child = ::fork();
  if (child == 0) {
    prepareProcess();
    reportTruncationAsJson("run");
    redirect(STDERR_FILENO, "/dev/null");
    const int output = ::open(folder.path("json").c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(output, STDOUT_FILENO);
    const auto file = llvm::cantFail(MappedFile::open(path));
    fs::resize_file(path, 0);
    volatile std::byte byte = file->bytes()[5000];
    ::_exit(static_cast<int>(byte));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  const auto json = nlohmann::json::parse(folder.read("json"));
  EXPECT_EQ(json["schema"], "kvopt/run/1");
  EXPECT_EQ(json["error"]["file"], path);
  EXPECT_EQ(json["error"]["exit_code"], 3);
  EXPECT_EQ(json["error"].size(), 9u);
}

TEST(ProcessDeathTest, OtherMemoryFaultsEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto fault = [] {
    prepareProcess();
    ::raise(SIGBUS);
    ::raise(SIGBUS);
  };
  EXPECT_EXIT(fault(), testing::KilledBySignal(SIGBUS), "");
}

TEST(Process, AnIgnoredSignalStaysIgnored) {
  EXPECT_EQ(exitCodeOf({"list", "passes"},
                       [] {
                         redirect(STDOUT_FILENO, "/dev/null");
                         std::signal(SIGHUP, SIG_IGN);
                       }),
            0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGHUP, SIG_IGN);
    prepareProcess();
    ::raise(SIGHUP);
    ::_exit(7);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

} // namespace
} // namespace kvopt
