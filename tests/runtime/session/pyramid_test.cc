// Which variant takes a step, and files that are no variants.
#include "runtime/session/pyramid.h"

#include "ir/op.h"
#include "support/diagnostic.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using testing::HasSubstr;

Manifest inBlocks(int64_t size, int64_t capacity) {
  Manifest manifest;
  manifest.contract = CacheUpdate::Blocks;
  manifest.blockSize = size;
  manifest.capacityValue = capacity;
  manifest.variants.push_back({"m.past0.onnx", 0, 0});
  for (int64_t rows = 0; rows < capacity;) {
    rows = std::min(rows + size, capacity);
    manifest.variants.push_back({"m.onnx", manifest.variants.back().pastBlocks + 1, rows});
  }
  ManifestCache cache;
  cache.storage = BlockCache{std::vector<std::string>(manifest.variants.size() - 1)};
  manifest.caches.push_back(cache);
  return manifest;
}

TEST(Pyramid, EveryPastTakesTheSmallestVariantThatHoldsIt) {
  for (int64_t size : {1, 3, 16, 64})
    for (int64_t capacity : {1, 16, 40, 64, 65}) {
      Pyramid pyramid = llvm::cantFail(Pyramid::create(inBlocks(size, capacity)));
      for (int64_t past = 0; past <= capacity; ++past) {
        const int64_t blocks = past / size + (past % size != 0 ? 1 : 0);
        EXPECT_EQ(pyramid.variantFor(past), static_cast<size_t>(blocks)) << past;
        EXPECT_EQ(pyramid[pyramid.variantFor(past)].pastBlocks, blocks);
      }
    }
}

TEST(Pyramid, VariantsMayBeLeftOut) {
  Manifest manifest = inBlocks(4, 18);
  manifest.variants.erase(manifest.variants.begin() + 3, manifest.variants.begin() + 5);
  manifest.variants.erase(manifest.variants.begin());
  Pyramid pyramid = llvm::cantFail(Pyramid::create(manifest)); // 4, 8 and 18 rows
  ASSERT_EQ(pyramid.size(), 3u);
  for (int64_t past = 0; past <= 18; ++past)
    EXPECT_EQ(pyramid.variantFor(past), past <= 4 ? 0u : past <= 8 ? 1u : 2u) << past;
}

TEST(Pyramid, OtherModelsHaveNoVariants) {
  EXPECT_TRUE(llvm::cantFail(Pyramid::create(Manifest())).empty());
}

TEST(Pyramid, RefusesVariantsThatAreNoPyramid) {
  auto problemOf = [](const Manifest& manifest) {
    auto pyramid = Pyramid::create(manifest);
    return pyramid ? "" : takeDiagnostic(pyramid.takeError()).str();
  };
  Manifest wrong = inBlocks(4, 18);
  std::swap(wrong.variants[1], wrong.variants[2]);
  EXPECT_THAT(problemOf(wrong), HasSubstr("not in the order"));
  wrong = inBlocks(4, 18);
  wrong.variants[2].pastRows = 4;
  EXPECT_THAT(problemOf(wrong), HasSubstr("not in the order"));
  wrong = inBlocks(4, 18);
  wrong.variants.pop_back();
  EXPECT_THAT(problemOf(wrong), HasSubstr("room for 16 tokens only"));
  wrong = inBlocks(4, 18);
  std::get<BlockCache>(wrong.caches[0].storage).inputs.pop_back();
  EXPECT_THAT(problemOf(wrong), HasSubstr("has 5 blocks"));
  wrong.capacityValue.reset();
  EXPECT_NE(problemOf(wrong), "");
}

TEST(VariantFiles, StayInTheirFolder) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("in"));
  folder.write("secret.onnx", "secret");
  std::filesystem::create_symlink("../secret.onnx", folder.path("in/link.onnx"));
  folder.write("in/broken.onnx", "no model");
  OpRegistry ops;
  auto files = variantFiles(folder.path("in"), ops);
  auto problemOf = [&](const std::string& name) {
    auto opened = files->open({name, 1, 16});
    return opened ? "" : takeDiagnostic(opened.takeError()).str();
  };
  EXPECT_NE(problemOf("../secret.onnx"), "");
  EXPECT_NE(problemOf(folder.path("secret.onnx")), "");
  EXPECT_NE(problemOf("link.onnx"), "");
  EXPECT_THAT(problemOf("missing.onnx"), HasSubstr("missing.onnx"));
  EXPECT_THAT(problemOf("broken.onnx"), HasSubstr("broken.onnx"));
  EXPECT_THAT(problemOf(""), HasSubstr("names no file"));
}

} // namespace
} // namespace kvopt
