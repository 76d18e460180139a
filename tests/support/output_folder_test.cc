// A folder of outputs appears whole or not at all.
#include "support/output_folder.h"

#include "support/diagnostic.h"
#include "tests/support/temporary_folder.h"

#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>

namespace kvopt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string failureText(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "no error";
}

/// Everything beneath the folder, by its path from there.
std::set<std::string> entriesOf(const TemporaryFolder& folder) {
  std::set<std::string> entries;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    entries.insert(entry.path().lexically_relative(folder.path()).string());
  return entries;
}

void addStep(OutputFolder& output, const std::string& step) {
  llvm::cantFail(output.addFolder(step));
  for (const char* name : {"a", "b"}) {
    OutputFile file = llvm::cantFail(output.addFile(step, name));
    llvm::cantFail(file.write(step + name));
    llvm::cantFail(file.commit());
  }
}

/// An output `path` with two steps.
OutputFolder filled(const std::string& path) {
  FileAccess access;
  OutputFolder output = llvm::cantFail(OutputFolder::create(path, access));
  addStep(output, "one");
  addStep(output, "two");
  return output;
}

const std::set<std::string> whole = {"out",       "out/one", "out/one/a", "out/one/b",
                                     "out/two/a", "out/two", "out/two/b"};

TEST(OutputFolder, AppearsOnCommitOnly) {
  for (bool exists : {false, true}) {
    TemporaryFolder folder;
    if (exists)
      fs::create_directory(folder.path("out"));
    OutputFolder output = filled(folder.path("out"));
    EXPECT_EQ(entriesOf(folder).count("out/one"), 0u);
    EXPECT_EQ(failureText(output.commit()), "no error");
    EXPECT_EQ(entriesOf(folder), whole);
    EXPECT_EQ(folder.read("out/two/b"), "twob");
  }
}

TEST(OutputFolder, WithoutACommitNothingIsLeft) {
  TemporaryFolder folder;
  { const OutputFolder output = filled(folder.path("out")); }
  EXPECT_EQ(entriesOf(folder), std::set<std::string>());
  fs::create_directory(folder.path("out"));
  { const OutputFolder output = filled(folder.path("out/")); }
  EXPECT_EQ(entriesOf(folder), std::set<std::string>{"out"});
}

TEST(OutputFolder, WhatCameMeanwhileIsKept) {
  TemporaryFolder folder;
  {
    OutputFolder output = filled(folder.path("out"));
    fs::create_directory(folder.path("out"));
    folder.write("out/own", "x");
    EXPECT_THAT(failureText(output.commit()), HasSubstr("cannot create the folder: File exists"));
  }
  EXPECT_EQ(entriesOf(folder), (std::set<std::string>{"out", "out/own"}));
  fs::remove(folder.path("out/own"));
  {
    OutputFolder output = filled(folder.path("out"));
    folder.write("out/two", "x");
    EXPECT_THAT(failureText(output.commit()), HasSubstr("cannot put 'two' in place"));
  }
  EXPECT_EQ(entriesOf(folder), (std::set<std::string>{"out", "out/two"}));
}

TEST(OutputFolder, TakesANewOrEmptyFolderOnly) {
  TemporaryFolder folder;
  const auto failure = [&](const std::string& name) {
    FileAccess access;
    return failureText(OutputFolder::create(folder.path(name), access).takeError());
  };
  folder.write("file", "x");
  fs::create_directory(folder.path("full"));
  folder.write("full/own", "x");
  fs::create_symlink("nowhere", folder.path("dangling"));
  fs::create_symlink("file", folder.path("link"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  const std::set<std::string> before = entriesOf(folder);
  EXPECT_THAT(failure("file"), HasSubstr("exists and is not a folder"));
  EXPECT_THAT(failure("link"), HasSubstr("exists and is not a folder"));
  EXPECT_THAT(failure("pipe"), HasSubstr("exists and is not a folder"));
  EXPECT_THAT(failure("full"), HasSubstr("the folder is not empty"));
  EXPECT_THAT(failure("dangling"), HasSubstr("is a symbolic link that leads nowhere"));
  EXPECT_THAT(failure("none/out"), HasSubstr("cannot create the folder"));
  EXPECT_EQ(entriesOf(folder), before);
}

TEST(OutputFolder, ASignalRemovesIt) {
  for (bool exists : {false, true})
    for (unsigned round = 0; round < 20; ++round) {
      TemporaryFolder folder;
      if (exists)
        fs::create_directory(folder.path("out"));
      const pid_t child = ::fork();
      if (child == 0) {
        struct sigaction action {};
        action.sa_handler = endBySignal;
        ::sigaction(SIGTERM, &action, nullptr);
        FileAccess access;
        OutputFolder output = llvm::cantFail(OutputFolder::create(folder.path("out"), access));
        for (int step = 0;; ++step)
          addStep(output, std::to_string(step));
      }
      ::usleep(500 + 397 * round);
      EXPECT_EQ(::kill(child, SIGTERM), 0);
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
      EXPECT_EQ(entriesOf(folder), exists ? std::set<std::string>{"out"} : std::set<std::string>());
    }
}

} // namespace
} // namespace kvopt
