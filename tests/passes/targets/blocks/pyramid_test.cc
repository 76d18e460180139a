// Models in variants for a number of past blocks each compute what the exported ones do, whichever
// variant takes a step and whatever rows that are no tokens hold; sessions over them do what
// sessions do.
#include "tests/passes/targets/blocks/fixed_blocks_fixture.h"

#include <gmock/gmock.h>

#include <set>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

using testing::HasSubstr;

class PyramidTest : public FixedBlocksTest {
protected:
  DrivenModel pyramidOf(int64_t size, int64_t capacity) {
    return lowered("pyramid:" + std::to_string(size), capacity);
  }
};

/// The model may compute with any of these numbers, of which none is the capacity.
TEST_P(PyramidTest, EqualsTheExportedModelWhateverNumberTheCapacityIs) {
  DrivenModel exported = asExported(path(), toolkit);
  for (int64_t capacity : {2, 3, 4, 8, 15, 16, 17, 32}) {
    SCOPED_TRACE(capacity);
    DrivenModel pyramid = pyramidOf(16, capacity);
    SessionOptions options;
    options.batch = 3;
    auto expected = openSession(exported, toolkit.runner->kernels(), options);
    auto found = open(pyramid, options);
    for (int64_t past = 0; past < capacity; past = found->length())
      expectSame(stepAlike(*expected, past == 0 ? capacity - 1 : 1),
                 stepAlike(*found, past == 0 ? capacity - 1 : 1));
    expectSameCaches(*expected, *found);
  }
}

TEST_P(PyramidTest, EveryPastTakesTheSmallestVariantInPrefillAndDecode) {
  constexpr int64_t size = 4, capacity = 11;
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel pyramid = pyramidOf(size, capacity);
  ASSERT_EQ(pyramid.manifest.variants.size(), 4u);
  SessionOptions options;
  options.batch = 2;
  auto expected = openSession(exported, toolkit.runner->kernels(), options);
  auto found = open(pyramid, options);
  std::set<size_t> chosen;
  for (int64_t past = 0; past < capacity; ++past)
    for (int64_t count : {int64_t{1}, int64_t{3}, capacity - past}) {
      if (past + count > capacity)
        continue;
      SCOPED_TRACE(formatted("{} tokens after {}", count, past));
      successOrThrow(expected->reset());
      successOrThrow(found->reset());
      if (past != 0)
        expectSame(stepAlike(*expected, past), stepAlike(*found, past));
      expectSame(stepAlike(*expected, count, 2), stepAlike(*found, count, 2));
      const int64_t blocks = past / size + (past % size != 0 ? 1 : 0);
      EXPECT_EQ(found->variants()[found->latestVariant()].pastBlocks, blocks);
      chosen.insert(found->latestVariant());
      expectSameCaches(*expected, *found);
    }
  EXPECT_EQ(chosen.size(), 4u);
}

TEST_P(PyramidTest, VariantsThatAreLeftOutAreReplacedByLargerOnes) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel pyramid = pyramidOf(4, 22);
  // Of 0 to 6 blocks, those with 0, 2 and all.
  auto& listed = pyramid.manifest.variants;
  listed = {listed[0], listed[2], listed[6]};
  variants = variantsInMemory(*pyramid.model, pyramid.manifest);
  auto expected = openSession(exported, toolkit.runner->kernels(), {});
  auto found = open(pyramid);
  const int64_t blocks[] = {0, 2, 2, 6, 6};
  const int64_t counts[] = {3, 2, 4, 5, 1};
  for (size_t i = 0; i < 5; ++i) {
    expectSame(stepAlike(*expected, counts[i]), stepAlike(*found, counts[i]));
    EXPECT_EQ(found->variants()[found->latestVariant()].pastBlocks, blocks[i]);
  }
  expectSameCaches(*expected, *found);
}

TEST_P(PyramidTest, SessionsAreCutForkedAndRearranged) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel pyramid = pyramidOf(8, 60);
  SessionOptions options;
  options.batch = 3;
  auto expected = openSession(exported, toolkit.runner->kernels(), options);
  auto found = open(pyramid, options);
  expectSameOperations(*expected, *found);
}

TEST_P(PyramidTest, CroppedSessionsTakeAVariantOfWhatIsLeft) {
  DrivenModel pyramid = pyramidOf(8, 60);
  auto session = open(pyramid);
  stepAlike(*session, 24);
  EXPECT_EQ(session->latestVariant(), 0u);
  stepAlike(*session, 1);
  EXPECT_EQ(session->latestVariant(), 3u);
  successOrThrow(session->crop(13));
  stepAlike(*session, 1);
  EXPECT_EQ(session->latestVariant(), 2u);
}

TEST_P(PyramidTest, SavedFrozenAndThawedSessionsGoOn) {
  expectSavedSessionsGoOn(pyramidOf(8, 64),
                          testing::TempDir() + "/" + GetParam().name + ".pyramid");
}

TEST_P(PyramidTest, TooManyTokensAreAnErrorThatChangesNothing) {
  DrivenModel pyramid = pyramidOf(8, 20);
  auto session = open(pyramid);
  stepAlike(*session, 19);
  EXPECT_THAT(problemOfStep(*session, 2), HasSubstr("do not fit"));
  EXPECT_EQ(session->length(), 19);
  stepAlike(*session, 1);
}

/// What is written is what runs, and constants are written once.
class WrittenPyramidTest : public PyramidTest {
protected:
  void write(int64_t size, int64_t capacity) {
    FixedBlocksTest::write(pyramidOf(size, capacity), folder);
  }
  PreparedModel read() { return FixedBlocksTest::read(folder); }

  TemporaryFolder folder;
};

TEST_P(WrittenPyramidTest, IsDrivenFromItsManifest) {
  write(4, 18);
  EXPECT_EQ(folder.entryCount(), 7u); // 6 variants and the constants of all
  DrivenModel exported = asExported(path(), toolkit);
  PreparedModel written = read();
  ASSERT_EQ(written.manifest.variants.size(), 6u);
  EXPECT_EQ(written.manifest.variants.front().file, "m.past0.onnx");
  EXPECT_EQ(written.manifest.variants.back().file, "m.onnx");
  auto expected = openSession(exported, toolkit.runner->kernels(), {});
  auto found = openFiles(written);
  for (size_t i = 0; i < 6; ++i) {
    expectSame(stepAlike(*expected, 3), stepAlike(*found, 3));
    EXPECT_EQ(found->latestVariant(), (3 * i + 3) / 4);
  }
  expectSameCaches(*expected, *found);
  const uintmax_t constants = std::filesystem::file_size(folder.path("m.onnx.data"));
  EXPECT_LT(constants, std::filesystem::file_size(path()));
  for (const ManifestVariant& variant : written.manifest.variants)
    EXPECT_LT(std::filesystem::file_size(folder.path(variant.file)), constants);
}

TEST_P(WrittenPyramidTest, AVariantThatIsMissingOrAnotherIsAnErrorThatChangesNothing) {
  write(4, 18);
  PreparedModel written = read();
  auto session = openFiles(written);
  stepAlike(*session, 3);
  namespace fs = std::filesystem;
  fs::rename(folder.path("m.past1.onnx"), folder.path("away"));
  EXPECT_THAT(problemOfStep(*session), HasSubstr("m.past1.onnx"));
  EXPECT_EQ(session->length(), 3);
  fs::copy(folder.path("m.past2.onnx"), folder.path("m.past1.onnx"));
  EXPECT_THAT(problemOfStep(*openFiles(written)), "");
  EXPECT_THAT(problemOfStep(*session), HasSubstr("a block too many"));
  session = openFiles(written);
  stepAlike(*session, 3);
  fs::remove(folder.path("m.past1.onnx"));
  fs::copy(folder.path("m.past0.onnx"), folder.path("m.past1.onnx"));
  EXPECT_THAT(problemOfStep(*session), HasSubstr("inputs that a variant with 1 blocks has"));
  session = openFiles(written);
  stepAlike(*session, 3);
  fs::remove(folder.path("m.past1.onnx"));
  fs::rename(folder.path("away"), folder.path("m.past1.onnx"));
  EXPECT_EQ(problemOfStep(*session), "");
  EXPECT_EQ(session->length(), 4);
}

INSTANTIATE_TEST_SUITE_P(Shipped, PyramidTest, shippedModels(), shippedModelName);
INSTANTIATE_TEST_SUITE_P(Shipped, WrittenPyramidTest, shippedModels(), shippedModelName);

/// Windows, soft caps, sinks, latent and grouped caches in blocks that hold rows which are none.
TEST_F(FixedBlocksCorpusTest, EveryModelThatTakesThemEqualsItsReferences) {
  // Pyramids and tiles take what blocks take.
  const ReferenceTable blocks = compared("blocks:5");
  EXPECT_GE(blocks.count(ReferenceVerdict::Equal), leastInSample(50));
  for (const ReferenceRow& row : blocks.rows)
    for (const ReferenceResult& result : row.results)
      EXPECT_TRUE(result.verdict == ReferenceVerdict::Equal ||
                  result.verdict == ReferenceVerdict::Refused ||
                  result.verdict == ReferenceVerdict::NotCompared)
          << row.model << " " << row.name << ": " << result.reason;
  for (const char* target : {"pyramid:5", "tiles:5"})
    expectSameVerdicts(blocks, compared(target));
}

} // namespace
} // namespace kvopt
