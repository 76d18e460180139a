// Copies of files: holes, contents, and the room that they need.
#include "support/file_access.h"
#include "support/file_copy.h"
#include "support/output_file.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace kvopt {
namespace {

TEST(FileCopy, DataOfASparseFileIsWhatIsOutsideOfHoles) {
  const TemporaryFolder folder;
  const std::string path = folder.write("sparse", std::string(1 << 16, 'x'));
  std::filesystem::resize_file(path, uintmax_t(1) << 30);
  auto source = CopySource::open(path);
  ASSERT_TRUE(static_cast<bool>(source));
  EXPECT_EQ(source->bytes(), int64_t(1) << 30);
  EXPECT_GE(source->dataBytes(), 1 << 16);
  EXPECT_LT(source->dataBytes(), 1 << 24);
}

TEST(FileCopy, ComparesContents) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", std::string(3 << 20, 'x'));
  auto source = CopySource::open(path);
  ASSERT_TRUE(static_cast<bool>(source));
  EXPECT_TRUE(source->hasContentsOf(folder.write("same", std::string(3 << 20, 'x'))));
  EXPECT_FALSE(source->hasContentsOf(folder.write("last", std::string((3 << 20) - 1, 'x') + 'y')));
  EXPECT_FALSE(source->hasContentsOf(folder.write("short", "x")));
  EXPECT_FALSE(source->hasContentsOf(folder.path("none")));
  EXPECT_FALSE(source->hasContentsOf(folder.path("")));
}

TEST(FileCopy, HasTheSameBytesAndReportsThem) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", std::string(100'000, 'x') + "end");
  FileAccess access;
  size_t copied = 0;
  auto copy = copyOf(path, folder.path("b"), access, [&](size_t bytes) { copied += bytes; });
  ASSERT_TRUE(static_cast<bool>(copy));
  EXPECT_FALSE(std::filesystem::exists(folder.path("b")));
  ASSERT_FALSE(static_cast<bool>(copy->commit()));
  EXPECT_EQ(folder.read("b"), folder.read("a"));
  EXPECT_EQ(copied, 100'003u);
  auto folderAsFile = copyOf(folder.path(""), folder.path("c"), access);
  EXPECT_FALSE(static_cast<bool>(folderAsFile));
  llvm::consumeError(folderAsFile.takeError());
}

TEST(FileCopy, RoomIsThatOfTheFileSystem) {
  const TemporaryFolder folder;
  EXPECT_GT(roomIn(folder.path("")), 0);
  EXPECT_EQ(roomIn(folder.path("none")), INT64_MAX);
}

} // namespace
} // namespace kvopt
