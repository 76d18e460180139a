// Private folders: links in them, and nothing that remains.
#include "support/working_folder.h"

#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

namespace kvopt {
namespace {

TEST(WorkingFolder, HasLinksAndIsRemoved) {
  TemporaryFolder parent;
  const std::string data = parent.write("data.bin", "weights");
  {
    auto made = WorkingFolder::create(parent.path());
    ASSERT_TRUE(static_cast<bool>(made));
    WorkingFolder folder = std::move(*made);
    struct stat status {};
    ASSERT_EQ(::stat(folder.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0700U);
    ASSERT_FALSE(static_cast<bool>(folder.link(data, "deep/er/data.bin")));
    EXPECT_TRUE(std::filesystem::equivalent(folder.path("deep/er/data.bin"), data));
    // A second link of the same name changes nothing.
    ASSERT_FALSE(static_cast<bool>(folder.link(data, "deep/er/data.bin")));
    folder.remove("deep/er/data.bin");
    EXPECT_FALSE(std::filesystem::exists(folder.path("deep/er/data.bin")));
    ASSERT_FALSE(static_cast<bool>(folder.link(data, "again")));
    EXPECT_EQ(parent.entryCount(), 2u);
  }
  EXPECT_EQ(parent.entryCount(), 1u);
  EXPECT_EQ(parent.read("data.bin"), "weights");
}

TEST(WorkingFolder, NeedsItsParentAndExistingFiles) {
  TemporaryFolder parent;
  auto missing = WorkingFolder::create(parent.path("missing"));
  EXPECT_FALSE(static_cast<bool>(missing));
  llvm::consumeError(missing.takeError());
  auto made = WorkingFolder::create(parent.path());
  ASSERT_TRUE(static_cast<bool>(made));
  llvm::Error error = made->link(parent.path("missing"), "name");
  EXPECT_TRUE(static_cast<bool>(error));
  llvm::consumeError(std::move(error));
}

} // namespace
} // namespace kvopt
