// Outputs appear whole or not at all, and failures leave nothing behind.
#include "support/output_file.h"

#include "support/diagnostic.h"
#include "support/mapped_file.h"
#include "tests/support/output_at.h"
#include "tests/support/temporary_folder.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace kvopt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string failureOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "no error";
}

std::string failureOf(llvm::Expected<OutputFile> file) {
  return file ? "no error" : failureOf(file.takeError());
}

TEST(OutputFile, AppearsOnCommitOnly) {
  TemporaryFolder folder;
  OutputFile file = outputAt(folder.path("out"));
  EXPECT_EQ(failureOf(file.write("abc")), "no error");
  EXPECT_EQ(failureOf(file.write(std::as_bytes(std::span("\0d", 2)))), "no error");
  EXPECT_EQ(failureOf(file.write("")), "no error");
  EXPECT_FALSE(fs::exists(folder.path("out")));
  EXPECT_EQ(failureOf(file.commit()), "no error");
  EXPECT_EQ(folder.read("out"), std::string("abc\0d", 5));
  EXPECT_EQ(folder.entryCount(), 1u);
  EXPECT_EQ(file.descriptor(), -1);
  EXPECT_THAT(failureOf(file.commit()), HasSubstr("after a failure or a commit"));
  EXPECT_THAT(failureOf(file.write("x")), HasSubstr("after a failure or a commit"));
}

TEST(OutputFile, ReservesRoomWithoutWriting) {
  TemporaryFolder folder;
  OutputFile file = outputAt(folder.path("out"));
  EXPECT_EQ(failureOf(file.reserve(1 << 20)), "no error");
  EXPECT_EQ(failureOf(file.write("abc")), "no error");
  EXPECT_EQ(failureOf(file.commit()), "no error");
  EXPECT_EQ(folder.read("out"), "abc");
  EXPECT_THAT(failureOf(file.reserve(1)), HasSubstr("after a failure or a commit"));
}

TEST(OutputFile, AnImpossibleReservationLeavesNothingBehind) {
  TemporaryFolder folder;
  OutputFile file = outputAt(folder.path("out"));
  EXPECT_THAT(failureOf(file.reserve(INT64_MAX)), HasSubstr("cannot make room for"));
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(OutputFile, WithoutCommitNothingChanges) {
  TemporaryFolder folder;
  folder.write("out", "old");
  {
    OutputFile file = outputAt(folder.path("out"));
    EXPECT_EQ(failureOf(file.write("new")), "no error");
    EXPECT_EQ(folder.read("out"), "old");
  }
  {
    OutputFile file = outputAt(folder.path("out"), OutputFile::Naming::Temporary);
    EXPECT_EQ(failureOf(file.write("new")), "no error");
    EXPECT_EQ(folder.entryCount(), 2u);
  }
  EXPECT_EQ(folder.read("out"), "old");
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(OutputFile, TemporaryNamesDoWhatAnonymousFilesDo) {
  TemporaryFolder folder;
  for (const char* text : {"first", "second"}) {
    OutputFile file = outputAt(folder.path("out"), OutputFile::Naming::Temporary);
    EXPECT_EQ(failureOf(file.write(text)), "no error");
    EXPECT_EQ(failureOf(file.commit()), "no error");
    EXPECT_EQ(folder.read("out"), text);
    EXPECT_EQ(folder.entryCount(), 1u);
    EXPECT_THAT(failureOf(file.commit()), HasSubstr("after a failure or a commit"));
  }
}

TEST(OutputFile, MovingTransfersTheTemporary) {
  TemporaryFolder folder;
  {
    OutputFile first = outputAt(folder.path("out"));
    OutputFile second = std::move(first);
    EXPECT_EQ(failureOf(second.write("x")), "no error");
    EXPECT_EQ(failureOf(second.commit()), "no error");
  }
  EXPECT_EQ(folder.read("out"), "x");
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(OutputFile, ReplacesAMappedInputWithoutTouchingItsBytes) {
  TemporaryFolder folder;
  std::string path = folder.write("model", "old bytes");
  MappedFile::Result input = MappedFile::open(path);
  ASSERT_TRUE(static_cast<bool>(input));
  OutputFile file = outputAt(path);
  EXPECT_EQ(failureOf(file.write((*input)->bytes().subspan(0, 3))), "no error");
  EXPECT_EQ(failureOf(file.commit()), "no error");
  EXPECT_EQ(folder.read("model"), "old");
  EXPECT_EQ((*input)->bytes().size(), 9u);
  EXPECT_EQ((*input)->bytes()[4], std::byte('b'));
}

TEST(OutputFile, NamesAMappedSourceThatBecameShorter) {
  TemporaryFolder folder;
  const std::string path = folder.write("model", std::string(1 << 16, 'x'));
  const auto input = llvm::cantFail(MappedFile::open(path));
  OutputFile file = outputAt(folder.path("out"));
  fs::resize_file(path, 0);
  EXPECT_EQ(failureOf(file.write(input->bytes())),
            path + ": the file became shorter while it was read");
  EXPECT_EQ(folder.entryCount(), 1u);
}

/// Makes something that is not a regular file, and says what it is.
struct Special {
  const char* what;
  void (*make)(const std::string& path);
  const char* refusal;
};
const Special specials[] = {
    {"a link to a file", [](const std::string& path) { fs::create_symlink("target", path); },
     "is a symbolic link; it is not replaced"},
    {"a dangling link", [](const std::string& path) { fs::create_symlink("nowhere", path); },
     "is a symbolic link; it is not replaced"},
    {"a link to a descriptor",
     [](const std::string& path) { fs::create_symlink("/proc/self/fd/1", path); },
     "is a symbolic link; it is not replaced"},
    {"a link to a device", [](const std::string& path) { fs::create_symlink("/dev/null", path); },
     "is a symbolic link; it is not replaced"},
    {"a pipe", [](const std::string& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); },
     "exists and is not a regular file; it is not replaced"},
};

TEST(OutputFile, RefusesWhatIsNotARegularFile) {
  for (const Special& special : specials) {
    SCOPED_TRACE(special.what);
    TemporaryFolder folder;
    folder.write("target", "old");
    special.make(folder.path("out"));
    const fs::file_status before = fs::symlink_status(folder.path("out"));
    EXPECT_THAT(failureOf(createOutput(folder.path("out"))), HasSubstr(special.refusal));
    EXPECT_THAT(failureOf(OutputFile::check(folder.path("out"))), HasSubstr(special.refusal));
    EXPECT_EQ(fs::symlink_status(folder.path("out")).type(), before.type());
    EXPECT_EQ(folder.read("target"), "old");
    EXPECT_EQ(folder.entryCount(), 2u);
  }
}

TEST(OutputFile, DoesNotReplaceWhatCameMeanwhile) {
  for (const Special& special : specials)
    for (auto naming : {OutputFile::Naming::Anonymous, OutputFile::Naming::Temporary}) {
      SCOPED_TRACE(special.what);
      TemporaryFolder folder;
      folder.write("target", "old");
      OutputFile file = outputAt(folder.path("out"), naming);
      EXPECT_EQ(failureOf(file.write("new")), "no error");
      special.make(folder.path("out"));
      const fs::file_status before = fs::symlink_status(folder.path("out"));
      EXPECT_THAT(failureOf(file.commit()), HasSubstr(special.refusal));
      EXPECT_EQ(fs::symlink_status(folder.path("out")).type(), before.type());
      EXPECT_EQ(folder.read("target"), "old");
      EXPECT_EQ(folder.entryCount(), 2u);
    }
}

TEST(OutputFile, HonoursTheUmask) {
  TemporaryFolder folder;
  mode_t before = ::umask(027);
  OutputFile file = outputAt(folder.path("out"));
  ::umask(before);
  EXPECT_EQ(failureOf(file.commit()), "no error");
  struct stat status {};
  ASSERT_EQ(::stat(folder.path("out").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0640u);
}

TEST(OutputFile, StaysInItsFolderWhenTheCurrentOneChanges) {
  TemporaryFolder folder, elsewhere;
  fs::path before = fs::current_path();
  fs::current_path(folder.path());
  OutputFile file = outputAt("out");
  fs::current_path(elsewhere.path());
  std::string failure = failureOf(file.commit());
  fs::current_path(before);
  EXPECT_EQ(failure, "no error");
  EXPECT_TRUE(fs::exists(folder.path("out")));
  EXPECT_EQ(elsewhere.entryCount(), 0u);
}

TEST(OutputFile, TakesTheLongestName) {
  TemporaryFolder folder;
  std::string name(255, 'n');
  EXPECT_EQ(failureOf(outputAt(folder.path(name)).commit()), "no error");
  EXPECT_TRUE(fs::exists(folder.path(name)));
}

TEST(OutputFile, RefusesTargetsThatAreNoFiles) {
  TemporaryFolder folder;
  fs::create_directory(folder.path("sub"));
  fs::create_symlink("/dev/null", folder.path("null"));
  EXPECT_THAT(failureOf(createOutput(folder.path("sub"))),
              HasSubstr("is not a regular file; it is not replaced"));
  EXPECT_THAT(failureOf(createOutput(folder.path("null"))), HasSubstr("is not replaced"));
  EXPECT_THAT(failureOf(createOutput("/dev/null")), HasSubstr("is not replaced"));
  EXPECT_THAT(failureOf(createOutput(folder.path("sub") + "/")), HasSubstr("is not a name"));
  EXPECT_THAT(failureOf(createOutput(folder.path("sub") + "/..")), HasSubstr("is not a name"));
  EXPECT_THAT(failureOf(createOutput("")), HasSubstr("is not a name"));
  EXPECT_THAT(failureOf(createOutput(folder.path("a") + std::string("\0b", 2))),
              HasSubstr("is not a name"));
  EXPECT_EQ(failureOf(createOutput(folder.path("none/out"))),
            folder.path("none/out") + ": cannot open the folder '" + folder.path("none") +
                "': No such file or directory");
  EXPECT_EQ(folder.entryCount(), 2u);
}

TEST(OutputFile, AFullDiskLeavesTheOldFileAlone) {
  TemporaryFolder folder;
  folder.write("out", "old");
  OutputFile file = outputAt(folder.path("out"));
  int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0)
    GTEST_SKIP() << "no /dev/full";
  ASSERT_GE(::dup2(full, file.descriptor()), 0);
  ::close(full);
  EXPECT_EQ(failureOf(file.write("new")),
            folder.path("out") + ": cannot write: No space left on device");
  EXPECT_EQ(folder.entryCount(), 1u);
  EXPECT_THAT(failureOf(file.commit()), HasSubstr("after a failure"));
  EXPECT_EQ(folder.read("out"), "old");
}

TEST(OutputFile, AShortWriteIsContinuedUntilTheErrorShows) {
  TemporaryFolder folder;
  OutputFile file = outputAt(folder.path("out"));
  // The kernel writes up to the limit first and refuses only the rest.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::string failure = failureOf(file.write(std::string(10000, 'x')));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(failure, folder.path("out") + ": cannot write: File too large");
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(OutputFile, AFailedRenameLeavesNoTemporary) {
  TemporaryFolder folder;
  OutputFile file = outputAt(folder.path("out"));
  EXPECT_EQ(failureOf(file.write("new")), "no error");
  fs::create_directory(folder.path("out"));
  EXPECT_THAT(failureOf(file.commit()), HasSubstr("cannot put in place: Is a directory"));
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(OutputFile, WritesThroughTheDescriptor) {
  TemporaryFolder folder;
  OutputFile file = outputAt(folder.path("out"));
  ASSERT_EQ(::write(file.descriptor(), "ab", 2), 2);
  EXPECT_EQ(failureOf(file.write("c")), "no error");
  EXPECT_EQ(failureOf(file.commit()), "no error");
  EXPECT_EQ(folder.read("out"), "abc");
}

/// A file of `size` bytes with `text` at `offset`, elsewhere holes.
FileDescriptor sparseFile(const std::string& path, off_t size, const std::string& text,
                          off_t offset) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  EXPECT_EQ(::ftruncate(file.get(), size), 0);
  EXPECT_EQ(::pwrite(file.get(), text.data(), text.size(), offset),
            static_cast<ssize_t>(text.size()));
  return file;
}

int64_t bytesOnDisk(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return int64_t{status.st_blocks} * 512;
}

TEST(OutputFile, CopiesARangeAndLeavesHoles) {
  TemporaryFolder folder;
  constexpr int64_t size = int64_t{64} << 20;
  const FileDescriptor source = sparseFile(folder.path("in"), size, "middle", size / 2);
  OutputFile file = outputAt(folder.path("out"));
  EXPECT_EQ(failureOf(file.write("head")), "no error");
  EXPECT_EQ(failureOf(file.skip(4)), "no error");
  EXPECT_EQ(failureOf(file.copy(source, 100, size - 100, "in")), "no error");
  EXPECT_EQ(failureOf(file.commit()), "no error");
  const std::string text = folder.read("out");
  ASSERT_EQ(text.size(), static_cast<size_t>(8 + size - 100));
  EXPECT_EQ(text.substr(0, 8), std::string("head\0\0\0\0", 8));
  EXPECT_EQ(text.substr(8 + size / 2 - 100, 6), "middle");
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\0')), text.size() - 10);
  if (bytesOnDisk(folder.path("in")) < size / 2) {
    EXPECT_LT(bytesOnDisk(folder.path("out")), size / 2);
  }
}

TEST(OutputFile, ACopyOfWhatEndsTooEarlyFails) {
  TemporaryFolder folder;
  const FileDescriptor source = sparseFile(folder.path("in"), 10, "0123456789", 0);
  OutputFile file = outputAt(folder.path("out"));
  EXPECT_THAT(failureOf(file.copy(source, 4, 7, "in")), HasSubstr("in: ends before"));
  EXPECT_THAT(failureOf(file.commit()), HasSubstr("after a failure"));
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(OutputFiles, AppearTogetherOrNotAtAll) {
  TemporaryFolder folder;
  OutputFiles files;
  for (const char* name : {"a", "b"}) {
    OutputFile file = outputAt(folder.path(name));
    EXPECT_EQ(failureOf(file.write(name)), "no error");
    files.add(std::move(file));
  }
  EXPECT_FALSE(fs::exists(folder.path("a")));
  EXPECT_EQ(failureOf(files.commit()), "no error");
  EXPECT_EQ(folder.read("a") + folder.read("b"), "ab");
  EXPECT_EQ(folder.entryCount(), 2u);

  OutputFiles broken;
  broken.add(outputAt(folder.path("c")));
  OutputFile failed = outputAt(folder.path("d"));
  ::close(failed.descriptor()); // so that closing it fails
  broken.add(std::move(failed));
  EXPECT_THAT(failureOf(broken.commit()), HasSubstr("d: cannot close"));
  EXPECT_FALSE(fs::exists(folder.path("c")));
  { OutputFiles dropped = std::move(broken); }
  EXPECT_EQ(folder.entryCount(), 2u);
}

TEST(OutputFiles, ReplaceEarlierOnesTogether) {
  for (auto naming : {OutputFile::Naming::Anonymous, OutputFile::Naming::Temporary}) {
    TemporaryFolder folder;
    for (const char* text : {"old", "new"}) {
      OutputFiles files;
      for (const char* name : {"a", "b", "c"}) {
        OutputFile file = outputAt(folder.path(name), naming);
        EXPECT_EQ(failureOf(file.write(text)), "no error");
        files.add(std::move(file));
      }
      EXPECT_EQ(failureOf(files.commit()), "no error");
      EXPECT_EQ(folder.read("a") + folder.read("b") + folder.read("c"),
                std::string(text) + text + text);
      EXPECT_EQ(folder.entryCount(), 3u);
    }
  }
}

TEST(OutputFiles, ALateFailureRestoresWhatWasReplaced) {
  for (auto naming : {OutputFile::Naming::Anonymous, OutputFile::Naming::Temporary}) {
    TemporaryFolder folder;
    folder.write("a", "old a");
    folder.write("b", "old b");
    folder.write("keeps", "kept");
    {
      OutputFiles files;
      for (const char* name : {"a", "b", "fresh", "z", "last"}) {
        OutputFile file = outputAt(folder.path(name), naming);
        EXPECT_EQ(failureOf(file.write("new")), "no error");
        files.add(std::move(file));
      }
      fs::create_directory(folder.path("z"));
      EXPECT_THAT(failureOf(files.commit()), HasSubstr("z: cannot put in place: Is a directory"));
    }
    EXPECT_EQ(folder.read("a") + folder.read("b") + folder.read("keeps"), "old aold bkept");
    EXPECT_EQ(folder.entryCount(), 4u);
  }
}

TEST(OutputFiles, TwoInOnePlaceAreRefused) {
  TemporaryFolder folder;
  fs::create_directory(folder.path("in"));
  fs::create_directory_symlink("in", folder.path("link"));
  OutputFiles files;
  for (const char* name : {"in/a", "in/b", "a", "link/../in/b"})
    files.add(outputAt(folder.path(name)));
  EXPECT_THAT(failureOf(files.commit()), HasSubstr("link/../in/b: two outputs have this path"));
  { OutputFiles dropped = std::move(files); }
  EXPECT_TRUE(fs::is_empty(folder.path("in")));
  EXPECT_FALSE(fs::exists(folder.path("a")));
}

TEST(SameFile, FollowsLinksAndNeedsBoth) {
  TemporaryFolder folder;
  std::string path = folder.write("a", "x"), other = folder.write("b", "x");
  fs::create_symlink("a", folder.path("soft"));
  fs::create_hard_link(path, folder.path("hard"));
  EXPECT_TRUE(sameFile(path, path));
  EXPECT_TRUE(sameFile(path, folder.path("./a")));
  EXPECT_TRUE(sameFile(path, folder.path("soft")));
  EXPECT_TRUE(sameFile(folder.path("hard"), folder.path("soft")));
  EXPECT_FALSE(sameFile(path, other));
  EXPECT_FALSE(sameFile(path, folder.path("none")));
  EXPECT_FALSE(sameFile(folder.path("none"), folder.path("none")));
}

} // namespace
} // namespace kvopt
