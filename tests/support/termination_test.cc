// Signals remove temporary names, and wait for steps that belong together.
#include "support/termination.h"

#include "support/diagnostic.h"
#include "support/output_file.h"
#include "tests/support/output_at.h"
#include "tests/support/temporary_folder.h"

#include <csignal>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace kvopt {
namespace {

/// Runs `child` in a process whose SIGTERM is handled; gives the signal that ended it, 0 for none.
int endingOf(const std::function<void()>& child) {
  const pid_t process = ::fork();
  if (process == 0) {
    struct sigaction action {};
    action.sa_handler = endBySignal;
    ::sigaction(SIGTERM, &action, nullptr);
    child();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(Termination, ASignalRemovesTemporaryNames) {
  TemporaryFolder folder;
  folder.write("kept", "x");
  EXPECT_EQ(endingOf([&] {
              OutputFile first =
                  llvm::cantFail(createOutput(folder.path("a"), OutputFile::Naming::Temporary));
              OutputFile second =
                  llvm::cantFail(createOutput(folder.path("b"), OutputFile::Naming::Temporary));
              llvm::cantFail(first.write("x"));
              ::raise(SIGTERM);
            }),
            SIGTERM);
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(Termination, ASignalWaitsForSections) {
  TemporaryFolder folder;
  EXPECT_EQ(endingOf([&] {
              {
                const UninterruptedSection outer;
                {
                  const UninterruptedSection inner;
                  ::raise(SIGTERM);
                  folder.write("inner", "");
                }
                folder.write("outer", "");
              }
              folder.write("after", "");
            }),
            SIGTERM);
  EXPECT_TRUE(std::filesystem::exists(folder.path("inner")));
  EXPECT_TRUE(std::filesystem::exists(folder.path("outer")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("after")));
}

TEST(Termination, ASetOfFilesIsWholeWhenASignalArrives) {
  TemporaryFolder folder;
  for (unsigned round = 0; round < 100; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      struct sigaction action {};
      action.sa_handler = endBySignal;
      ::sigaction(SIGTERM, &action, nullptr);
      for (int text = 0;; ++text) {
        OutputFiles files;
        for (const char* name : {"a", "b", "c"}) {
          OutputFile file = outputAt(folder.path(name), round % 2 ? OutputFile::Naming::Temporary
                                                                  : OutputFile::Naming::Anonymous);
          llvm::cantFail(file.write(formatted("{} {}", round, text)));
          files.add(std::move(file));
        }
        llvm::cantFail(files.commit());
      }
    }
    ::usleep(1000 + 97 * round);
    EXPECT_EQ(::kill(child, SIGTERM), 0);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    const size_t count = folder.entryCount();
    EXPECT_TRUE(count == 3 || count == 0) << count;
    if (count == 3) {
      EXPECT_EQ(folder.read("a"), folder.read("b"));
      EXPECT_EQ(folder.read("a"), folder.read("c"));
    }
  }
}

TEST(Termination, WithoutASignalNothingEnds) {
  TemporaryFolder folder;
  EXPECT_EQ(endingOf([&] {
              { const UninterruptedSection section; }
              folder.write("after", "");
            }),
            0);
  EXPECT_TRUE(std::filesystem::exists(folder.path("after")));
}

TEST(Termination, ANameIsRemovedOnceAndFollowsMoves) {
  TemporaryFolder folder;
  const FileDescriptor opened(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  TemporaryName first = TemporaryName::in(opened.get());
  folder.write(first.text(), "");
  TemporaryName second = std::move(first);
  EXPECT_FALSE(first.isSet());
  EXPECT_EQ(folder.entryCount(), 1u);
  second.release();
  EXPECT_FALSE(second.isSet());
  EXPECT_EQ(folder.entryCount(), 1u);
  second = TemporaryName::in(opened.get());
  folder.write(second.text(), "");
  second.remove();
  EXPECT_EQ(folder.entryCount(), 1u);
}

} // namespace
} // namespace kvopt
