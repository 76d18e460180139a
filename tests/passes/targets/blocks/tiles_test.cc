// Models that are cut around attention compute what the exported ones do, in pieces and as a whole,
// whatever rows that are no tokens hold; sessions over the pieces do what sessions do.
#include "ir/text/printer.h"
#include "tests/passes/targets/blocks/fixed_blocks_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

using testing::HasSubstr;

class TilesTest : public FixedBlocksTest {
protected:
  DrivenModel tilesOf(int64_t size, int64_t capacity) {
    return lowered("tiles:" + std::to_string(size), capacity);
  }
};

/// The host's loop and the model's own chain are the same tiles.
TEST_P(TilesTest, PiecesAndTheWholeModelGiveTheSameBits) {
  DrivenModel tiles = tilesOf(5, 23);
  DrivenModel whole = tilesOf(5, 23);
  whole.manifest.tiles.reset();
  SessionOptions options;
  options.batch = 2;
  auto inPieces = open(tiles, options);
  auto asWhole = open(whole, options);
  for (int64_t count : {3, 1, 1, 4, 1, 9, 3, 1}) {
    const StepResult expected = stepAlike(*asWhole, count);
    const StepResult found = stepAlike(*inPieces, count);
    ASSERT_EQ(expected.outputs.size(), found.outputs.size());
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      EXPECT_EQ(expected.outputs[i].name, found.outputs[i].name);
      const auto bits = valueOrThrow(
          compareTensors(expected.outputs[i].tensor.view, found.outputs[i].tensor.view));
      EXPECT_EQ(bits.maxAbs, 0);
    }
  }
  EXPECT_EQ(inPieces->length(), 23);
}

TEST_P(TilesTest, EveryPastInPrefillAndDecode) {
  constexpr int64_t size = 4, capacity = 11;
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel tiles = tilesOf(size, capacity);
  SessionOptions options;
  options.batch = 2;
  auto expected = openSession(exported, toolkit.runner->kernels(), options);
  auto found = open(tiles, options);
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
      expectSameCaches(*expected, *found);
    }
}

TEST_P(TilesTest, SessionsAreCutForkedAndRearranged) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel tiles = tilesOf(8, 60);
  SessionOptions options;
  options.batch = 3;
  auto expected = openSession(exported, toolkit.runner->kernels(), options);
  auto found = open(tiles, options);
  expectSameOperations(*expected, *found);
}

TEST_P(TilesTest, SavedFrozenAndThawedSessionsGoOn) {
  expectSavedSessionsGoOn(tilesOf(8, 64), testing::TempDir() + "/" + GetParam().name + ".tiles");
}

TEST_P(TilesTest, TooManyTokensAreAnErrorThatChangesNothing) {
  DrivenModel tiles = tilesOf(8, 20);
  auto session = open(tiles);
  stepAlike(*session, 19);
  EXPECT_THAT(problemOfStep(*session, 2), HasSubstr("do not fit"));
  EXPECT_EQ(session->length(), 19);
  stepAlike(*session, 1);
}

/// Layers that are alike share their tiles, and what is the same for all of them.
TEST_P(TilesTest, LayersShareTilesMasksAndTheFirstState) {
  DrivenModel tiles = tilesOf(8, 20);
  const ManifestTiles& description = *tiles.manifest.tiles;
  EXPECT_EQ(description.attentions.size(), GetParam().sites);
  EXPECT_EQ(description.parts.size(), GetParam().sites + 1u);
  EXPECT_EQ(description.tiles.size(), 3u); // of 8 rows, of 4, and of the new ones
  for (const ManifestTiledAttention& attention : description.attentions) {
    EXPECT_EQ(attention.mask, description.attentions[0].mask);
    EXPECT_EQ(attention.output, description.attentions[0].output);
    EXPECT_EQ(attention.blockTile, description.attentions[0].blockTile);
  }
}

/// Engines that know the extents of a part's inputs fold everything that is computed of them.
TEST_P(TilesTest, PartsHandOverNoShapes) {
  DrivenModel tiles = tilesOf(8, 20);
  for (size_t i = 1; i < tiles.manifest.tiles->parts.size(); ++i) {
    const Model* part = valueOrThrow(variants->openPart(*tiles.manifest.tiles, i));
    for (const std::unique_ptr<Value>& input : part->graph().inputs()) {
      const bool isOfTheModel = tiles.model->graph().findValue(input->name())->isGraphInput();
      EXPECT_TRUE(isOfTheModel || isFloatingPoint(input->type().elementType()) ||
                  input->type().rank() > 1)
          << "part " << i << " is given " << input->name().str() << " " << input->type().str();
    }
  }
}

class WrittenTilesTest : public TilesTest {
protected:
  TemporaryFolder folder;
};

TEST_P(WrittenTilesTest, ArePiecesThatTheManifestPutsTogether) {
  write(tilesOf(4, 18), folder);
  DrivenModel exported = asExported(path(), toolkit);
  PreparedModel written = read(folder);
  const ManifestTiles& tiles = *written.manifest.tiles;
  // The model, its pieces, and the constants of all.
  EXPECT_EQ(folder.entryCount(), 2 + tiles.parts.size() + tiles.tiles.size());
  EXPECT_EQ(tiles.parts[1], "m.part1.onnx");
  EXPECT_EQ(tiles.tiles[0], "m.tile0.onnx");
  auto expected = openSession(exported, toolkit.runner->kernels(), {});
  auto found = openFiles(written);
  for (size_t i = 0; i < 6; ++i)
    expectSame(stepAlike(*expected, 3), stepAlike(*found, 3));
  expectSameCaches(*expected, *found);
  const uintmax_t constants = std::filesystem::file_size(folder.path("m.onnx.data"));
  EXPECT_LT(constants, std::filesystem::file_size(path()));
}

TEST_P(WrittenTilesTest, APieceThatIsMissingOrAnotherIsAnError) {
  write(tilesOf(4, 18), folder);
  PreparedModel written = read(folder);
  const auto problem = [&] {
    auto session = Session::create(*written.model, toolkit.runner->kernels(), written.manifest, {});
    return session ? problemOfStep(**session) : takeDiagnostic(session.takeError()).str();
  };
  EXPECT_EQ(problem(), "");
  namespace fs = std::filesystem;
  fs::rename(folder.path("m.part1.onnx"), folder.path("away"));
  EXPECT_THAT(problem(), HasSubstr("m.part1.onnx"));
  fs::copy(folder.path("m.part0.onnx"), folder.path("m.part1.onnx"));
  EXPECT_THAT(problem(), HasSubstr("which nothing before it gives"));
  fs::remove(folder.path("m.part1.onnx"));
  fs::copy(folder.path("m.tile0.onnx"), folder.path("m.part1.onnx"));
  EXPECT_THAT(problem(), HasSubstr("which nothing before it gives"));
  fs::remove(folder.path("m.part1.onnx"));
  fs::rename(folder.path("away"), folder.path("m.part1.onnx"));
  fs::rename(folder.path("m.tile0.onnx"), folder.path("away"));
  fs::copy(folder.path("m.part0.onnx"), folder.path("m.tile0.onnx"));
  EXPECT_THAT(problem(), HasSubstr("which no tile is given"));
}

INSTANTIATE_TEST_SUITE_P(Shipped, TilesTest, shippedModels(), shippedModelName);
INSTANTIATE_TEST_SUITE_P(Shipped, WrittenTilesTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
