// Folders whose files are links into a store, as download caches make them.
#include "support/confined_folder.h"

#include "support/mapped_file.h"
#include "tests/support/temporary_folder.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A model that is a link into a store, opened by the kernel or by walking.
class Store : public testing::TestWithParam<bool> {
protected:
  Store() {
    fs::create_directories(root.path("store/sub"));
    fs::create_directories(root.path("view"));
    root.write("store/model", "m");
    root.write("store/data", "data");
    root.write("store/sub/data", "deep");
    root.write("store2", "beside the store");
    root.write("secret", "secret");
    fs::create_symlink("../store/model", root.path("view/model"));
  }

  std::string read(const ConfinedFolder& folder, const std::string& name) const {
    auto file = GetParam() ? MappedFile::openBeneathByWalk(folder, name)
                           : MappedFile::openBeneath(folder, name);
    if (!file)
      return "error: " + llvm::toString(file.takeError());
    const auto bytes = (*file)->bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  TemporaryFolder root;
};

TEST_P(Store, IsKnownByTheModelsLink) {
  const ConfinedFolder linked = ConfinedFolder::of(root.path("view/model"));
  EXPECT_EQ(linked.path, root.path("view"));
  EXPECT_EQ(linked.store, fs::canonical(root.path("store")).string());
  EXPECT_EQ(ConfinedFolder::of(root.path("store/model")).store, "");
  // A link to the folder is the folder.
  fs::create_directory_symlink("store", root.path("other"));
  EXPECT_EQ(ConfinedFolder::of(root.path("other/model")).store, "");
  EXPECT_EQ(ConfinedFolder::of("model").path, "");
}

TEST_P(Store, LinksIntoItAreFollowed) {
  fs::create_symlink("../store/data", root.path("view/data"));
  fs::create_symlink(root.path("store/sub/data"), root.path("view/absolute"));
  fs::create_symlink("data", root.path("view/link_to_link"));
  const ConfinedFolder folder = ConfinedFolder::of(root.path("view/model"));
  EXPECT_EQ(read(folder, "data"), "data");
  EXPECT_EQ(read(folder, "absolute"), "deep");
  EXPECT_EQ(read(folder, "link_to_link"), "data");
  // A model that is not a link has no store.
  root.write("view/other", "m");
  EXPECT_THAT(read(ConfinedFolder::of(root.path("view/other")), "data"), HasSubstr("error: "));
}

TEST_P(Store, LinksElsewhereAreNot) {
  fs::create_symlink("../secret", root.path("view/secret"));
  fs::create_symlink("../store2", root.path("view/neighbor"));
  fs::create_symlink("../store", root.path("view/folder"));
  fs::create_symlink("../secret", root.path("store/out"));
  fs::create_symlink("../store/out", root.path("view/twice"));
  const ConfinedFolder folder = ConfinedFolder::of(root.path("view/model"));
  const char* leaves = GetParam() ? "goes through a symbolic link" : "leads out of the folder";
  for (const char* name : {"secret", "neighbor", "twice", "out"})
    EXPECT_THAT(read(folder, name), HasSubstr(leaves)) << name;
  EXPECT_THAT(read(folder, "folder"), HasSubstr("error: "));
  EXPECT_THAT(read(folder, "../secret"), HasSubstr("has a '..' component"));
  EXPECT_THAT(read(folder, root.path("store/data")), HasSubstr("is absolute"));
}

TEST_P(Store, HasWhatIsNotInTheFolder) {
  const ConfinedFolder folder = ConfinedFolder::of(root.path("view/model"));
  EXPECT_EQ(read(folder, "sub/data"), "deep");
  EXPECT_EQ(folder.locate("sub/data"), fs::canonical(root.path("store")).string() + "/sub/data");
  root.write("view/data", "own");
  EXPECT_EQ(read(folder, "data"), "own");
  EXPECT_EQ(folder.locate("data"), root.path("view/data"));
  EXPECT_THAT(read(folder, "none"), HasSubstr(root.path("view/none")));
  EXPECT_EQ(folder.locate("none"), root.path("view/none"));
}

INSTANTIATE_TEST_SUITE_P(ConfinedFolder, Store, testing::Bool(), [](const auto& parameter) {
  return std::string(parameter.param ? "ByWalk" : "ByKernel");
});

} // namespace
} // namespace kvopt
