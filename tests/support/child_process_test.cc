// Command lines: exit codes, time limits, quotes, and what remains of them.
#include "support/child_process.h"

#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <thread>

namespace kvopt {
namespace {

using namespace std::chrono_literals;

CommandEnd endOf(const std::string& command, std::chrono::milliseconds limit = 60s) {
  auto end = runCommand(command, limit);
  if (!end) {
    ADD_FAILURE() << llvm::toString(end.takeError());
    return {-1, false};
  }
  return *end;
}

TEST(ChildProcess, ExitCodesAreThoseOfAShell) {
  EXPECT_EQ(endOf("exit 0").code, 0);
  EXPECT_EQ(endOf("exit 7").code, 7);
  EXPECT_EQ(endOf("false | true").code, 0);
  EXPECT_EQ(endOf("no-such-command-of-kvopt").code, 127);
  EXPECT_EQ(endOf("kill -SEGV $$").code, 128 + 11);
}

TEST(ChildProcess, ACommandThatCannotStartIsAnError) {
  auto end = runCommand(std::string(1 << 20, ':'), 60s);
  ASSERT_FALSE(bool(end));
  const std::string message = llvm::toString(end.takeError());
  EXPECT_NE(message.find("Argument list too long"), std::string::npos) << message;
}

TEST(ChildProcess, ReadsNothingAndPrintsNothing) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(endOf("read line").code, 1);
  EXPECT_EQ(endOf("echo printed; echo printed >&2").code, 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(ChildProcess, AllProcessesEndWithTheTime) {
  TemporaryFolder folder;
  const std::string file = folder.path("late");
  const auto start = std::chrono::steady_clock::now();
  // The inner shell would write the file after the limit.
  const CommandEnd end = endOf("(sleep 0.7; touch " + shellWord(file) + ") & sleep 30", 100ms);
  EXPECT_TRUE(end.isTimeout);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(ChildProcess, WordsAreQuotedForTheShell) {
  EXPECT_EQ(shellWord("/a/b-c_1.onnx"), "/a/b-c_1.onnx");
  EXPECT_EQ(shellWord(""), "''");
  TemporaryFolder folder;
  for (const std::string name : {"a b", "it's", "$HOME", "`x`", "\"q\"", "new\nline", ";exit 3"}) {
    folder.write(name, "");
    EXPECT_EQ(endOf("test -f " + shellWord(folder.path(name))).code, 0) << name;
  }
}

} // namespace
} // namespace kvopt
