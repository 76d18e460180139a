// Mapping, slicing, and the confinement of names that come from a model.
#include "support/mapped_file.h"

#include "support/diagnostic.h"
#include "tests/support/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <sys/stat.h>

namespace kvopt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string contentOf(MappedFile::Result file) {
  return file ? text((*file)->bytes()) : "error: " + llvm::toString(file.takeError());
}

std::string failureOf(MappedFile::Result file) {
  return file ? "no error" : takeDiagnostic(file.takeError()).str();
}

TEST(MappedFile, GivesTheBytesOfAFile) {
  TemporaryFolder folder;
  std::string content("ab\0c", 4);
  MappedFile::Result file = MappedFile::open(folder.write("data", content));
  ASSERT_TRUE(static_cast<bool>(file));
  EXPECT_EQ(text((*file)->bytes()), content);
  EXPECT_EQ((*file)->path(), folder.path("data"));
  // The view outlives the name.
  fs::remove(folder.path("data"));
  EXPECT_EQ(text((*file)->bytes()), content);
}

TEST(MappedFile, AnEmptyFileIsFine) {
  TemporaryFolder folder;
  MappedFile::Result file = MappedFile::open(folder.write("empty", ""));
  ASSERT_TRUE(static_cast<bool>(file));
  EXPECT_TRUE((*file)->bytes().empty());
  auto nothing = (*file)->slice(0, 0);
  ASSERT_TRUE(static_cast<bool>(nothing));
  EXPECT_TRUE(nothing->empty());
  auto something = (*file)->slice(0, 1);
  EXPECT_FALSE(static_cast<bool>(something));
  llvm::consumeError(something.takeError());
}

TEST(MappedFile, MapsMoreThanCouldBeRead) {
  TemporaryFolder folder;
  std::string path = folder.write("sparse", "x");
  constexpr uint64_t size = uint64_t(64) << 30;
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size)), 0);
  MappedFile::Result file = MappedFile::open(path);
  ASSERT_TRUE(static_cast<bool>(file));
  auto last = (*file)->slice(size - 1, 1);
  ASSERT_TRUE(static_cast<bool>(last));
  EXPECT_EQ(last->front(), std::byte(0));
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(failureOf(MappedFile::open(folder.path("none"))),
            folder.path("none") + ": cannot open: No such file or directory");
  EXPECT_EQ(failureOf(MappedFile::open(folder.path())),
            folder.path() + ": is a directory, not a file");
  EXPECT_EQ(failureOf(MappedFile::open(folder.path("pipe"))),
            folder.path("pipe") + ": is not a regular file");
  EXPECT_EQ(failureOf(MappedFile::open("/dev/null")), "/dev/null: is not a regular file");
  EXPECT_THAT(failureOf(MappedFile::open("")), HasSubstr("is not a file name"));
  std::string path = folder.write("data", "x");
  EXPECT_THAT(failureOf(MappedFile::open(path + std::string("\0tail", 5))),
              HasSubstr("is not a file name"));
}

TEST(MappedFile, SliceChecksBoundsWithoutOverflow) {
  TemporaryFolder folder;
  MappedFile::Result file = MappedFile::open(folder.write("data", "0123456789"));
  ASSERT_TRUE(static_cast<bool>(file));
  auto slice = [&](uint64_t offset, uint64_t length) -> std::string {
    auto bytes = (*file)->slice(offset, length);
    return bytes ? text(*bytes) : takeDiagnostic(bytes.takeError()).str();
  };
  constexpr uint64_t greatest = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(slice(2, 3), "234");
  EXPECT_EQ(slice(0, 10), "0123456789");
  EXPECT_EQ(slice(10, 0), "");
  EXPECT_EQ(slice(8, 3),
            folder.path("data") + ": has 10 bytes; 3 bytes at offset 8 were asked for");
  for (auto [offset, length] : {std::pair<uint64_t, uint64_t>{11, 0},
                                {0, 11},
                                {greatest, 1},
                                {1, greatest},
                                {greatest, greatest},
                                {greatest - 4, 10},
                                {uint64_t(1) << 63, uint64_t(1) << 63}})
    EXPECT_THAT(slice(offset, length), HasSubstr("has 10 bytes"));
}

TEST(MappedFile, IdentityTellsFilesApart) {
  TemporaryFolder folder;
  std::string path = folder.write("data", "x");
  folder.write("other", "x");
  fs::create_hard_link(path, folder.path("hard"));
  fs::create_symlink("data", folder.path("soft"));
  auto identity = [&](const std::string& name) {
    MappedFile::Result file = MappedFile::open(folder.path(name));
    return file ? (*file)->identity() : (llvm::consumeError(file.takeError()), FileIdentity());
  };
  EXPECT_TRUE(identity("data") == identity("hard"));
  EXPECT_TRUE(identity("data") == identity("soft"));
  EXPECT_FALSE(identity("data") == identity("other"));
  EXPECT_FALSE(identity("data") == FileIdentity());
}

// Both ways to open a confined name give the same answers, links inside the folder excepted.
class Beneath : public testing::TestWithParam<bool> {
protected:
  Beneath() {
    fs::create_directories(outer.path("model/sub"));
    outer.write("secret", "secret");
    outer.write("model/data", "data");
    outer.write("model/sub/data", "deep");
  }
  MappedFile::Result open(const std::string& name) {
    return GetParam() ? MappedFile::openBeneathByWalk(folder, name)
                      : MappedFile::openBeneath(folder, name);
  }

  TemporaryFolder outer;
  std::string folder = outer.path("model");
};

TEST_P(Beneath, OpensWhatLiesInside) {
  EXPECT_EQ(contentOf(open("data")), "data");
  EXPECT_EQ(contentOf(open("sub/data")), "deep");
  EXPECT_EQ(contentOf(open("./sub//./data")), "deep");
  outer.write("model/..data", "dots");
  EXPECT_EQ(contentOf(open("..data")), "dots");
  MappedFile::Result file = open("sub/data");
  ASSERT_TRUE(static_cast<bool>(file));
  EXPECT_EQ((*file)->path(), folder + "/sub/data");
}

TEST_P(Beneath, RefusesPathsThatLeave) {
  EXPECT_THAT(failureOf(open("../secret")), HasSubstr("has a '..' component"));
  EXPECT_THAT(failureOf(open("sub/../../secret")), HasSubstr("has a '..' component"));
  EXPECT_THAT(failureOf(open("sub/..")), HasSubstr("has a '..' component"));
  EXPECT_THAT(failureOf(open(outer.path("secret"))), HasSubstr("is absolute"));
  EXPECT_THAT(failureOf(open(folder + "/data")), HasSubstr("is absolute"));
  EXPECT_THAT(failureOf(open("")), HasSubstr("empty file name"));
  EXPECT_THAT(failureOf(open(std::string("data\0x", 6))), HasSubstr("NUL byte"));
}

TEST_P(Beneath, RefusesLinksThatLeave) {
  fs::create_symlink("../secret", folder + "/relative");
  fs::create_symlink(outer.path("secret"), folder + "/absolute");
  fs::create_directory_symlink("..", folder + "/parent");
  fs::create_symlink("/proc/self/exe", folder + "/magic");
  for (const char* name : {"relative", "absolute", "parent/secret", "magic"}) {
    std::string failure = failureOf(open(name));
    EXPECT_THAT(failure,
                HasSubstr(GetParam() ? "goes through a symbolic link" : "leads out of the folder"));
    EXPECT_THAT(failure, HasSubstr("hint: copy the file"));
  }
}

TEST_P(Beneath, LinksInsideAreFollowedOnlyByTheKernel) {
  fs::create_symlink("sub/data", folder + "/inside");
  if (GetParam())
    EXPECT_THAT(failureOf(open("inside")), HasSubstr("goes through a symbolic link"));
  else
    EXPECT_EQ(contentOf(open("inside")), "deep");
}

TEST_P(Beneath, RefusesWhatIsNoRegularFile) {
  EXPECT_EQ(failureOf(open("none")), folder + "/none: cannot open: No such file or directory");
  EXPECT_EQ(failureOf(open("data/x")), folder + "/data/x: cannot open: Not a directory");
  EXPECT_EQ(failureOf(open("sub")), folder + "/sub: is a directory, not a file");
  EXPECT_EQ(failureOf(open(".")), folder + "/.: is a directory, not a file");
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(failureOf(open("pipe")), folder + "/pipe: is not a regular file");
  folder = outer.path("nowhere");
  EXPECT_EQ(failureOf(open("data")), folder + ": cannot open: No such file or directory");
}

TEST_P(Beneath, AnEmptyFolderIsTheCurrentOne) {
  fs::path before = fs::current_path();
  fs::current_path(folder);
  folder.clear();
  std::string content = contentOf(open("sub/data")), failure = failureOf(open("../secret"));
  fs::current_path(before);
  EXPECT_EQ(content, "deep");
  EXPECT_THAT(failure, HasSubstr("has a '..' component"));
}

INSTANTIATE_TEST_SUITE_P(MappedFile, Beneath, testing::Bool(), [](const auto& parameter) {
  return std::string(parameter.param ? "ByWalk" : "ByKernel");
});

TEST(MappedFile, IsFoundByItsAddresses) {
  TemporaryFolder folder;
  const std::string path = folder.write("data", "0123456789");
  const std::byte* first = nullptr;
  {
    auto file = MappedFile::open(path);
    ASSERT_TRUE(static_cast<bool>(file));
    first = (*file)->bytes().data();
    EXPECT_EQ(mappedFileAt(first), path);
    EXPECT_EQ(mappedFileAt(first + 9), path);
    EXPECT_EQ(mappedFileAt(first + 10), nullptr);
    EXPECT_EQ(mappedFileAt(first - 1), nullptr);
  }
  EXPECT_EQ(mappedFileAt(first), nullptr);
  EXPECT_EQ(mappedFileAt(nullptr), nullptr);
}

TEST(MappedFile, MoreThanTheTableHoldsAreMapped) {
  TemporaryFolder folder;
  const std::string path = folder.write("data", "x");
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (int i = 0; i < 5000; ++i)
    files.push_back(llvm::cantFail(MappedFile::open(path)));
  EXPECT_EQ(files.back()->bytes().size(), 1u);
  files.clear();
  const auto file = llvm::cantFail(MappedFile::open(path));
  EXPECT_EQ(mappedFileAt(file->bytes().data()), path);
}

} // namespace
} // namespace kvopt
