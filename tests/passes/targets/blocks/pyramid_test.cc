// Models in variants for a number of past blocks each compute what the exported ones do, whichever
// variant takes a step and whatever rows that are no tokens hold; sessions over them do what
// sessions do.
#include "driver/variants.h"
#include "driver/verify/references.h"
#include "runtime/equivalence/comparison.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>

#include <set>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

using testing::HasSubstr;

class PyramidTest : public ShippedModelTest {
protected:
  DrivenModel pyramidOf(int64_t size, int64_t capacity) {
    DrivenModel driven = rewritten(path(), toolkit, "capacity=" + std::to_string(capacity),
                                   "pyramid:" + std::to_string(size));
    variants = variantsInMemory(*driven.model, driven.manifest);
    return driven;
  }
  /// Rows that nobody wrote are large numbers.
  std::unique_ptr<Session> open(const DrivenModel& driven, SessionOptions options = {}) {
    options.variants = variants;
    return openSession(driven, toolkit.kernels, options);
  }

  static void expectClose(const TensorView& expected, const TensorView& found) {
    ASSERT_EQ(expected.shape, found.shape);
    Comparison comparison = valueOrThrow(compareTensors(expected, found));
    EXPECT_LE(comparison.maxAbs, 1e-4);
  }
  static void expectSame(const StepResult& expected, const StepResult& found) {
    ASSERT_EQ(expected.outputs.size(), found.outputs.size());
    for (size_t i = 0; i < expected.outputs.size(); ++i)
      expectClose(expected.outputs[i].tensor.view, found.outputs[i].tensor.view);
  }
  static void expectSameCaches(const Session& expected, const Session& found) {
    EXPECT_EQ(expected.length(), found.length());
    ASSERT_EQ(expected.cacheCount(), found.cacheCount());
    for (size_t i = 0; i < expected.cacheCount(); ++i)
      expectClose(expected.exportedCacheView(i), found.exportedCacheView(i));
  }

  std::shared_ptr<VariantSource> variants;
};

TEST_P(PyramidTest, EqualsTheExportedModel) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel pyramid = pyramidOf(9, 130);
  for (Padding padding : {Padding::None, Padding::Left, Padding::Right}) {
    SCOPED_TRACE(static_cast<int>(padding));
    expectEqualsExported(exported, pyramid, padding);
  }
}

TEST_P(PyramidTest, EveryPastTakesTheSmallestVariantInPrefillAndDecode) {
  constexpr int64_t size = 4, capacity = 11;
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel pyramid = pyramidOf(size, capacity);
  ASSERT_EQ(pyramid.manifest.variants.size(), 4u);
  SessionOptions options;
  options.batch = 2;
  auto expected = openSession(exported, toolkit.kernels, options);
  auto found = open(pyramid, options);
  std::set<size_t> chosen;
  for (int64_t past = 0; past < capacity; ++past)
    for (int64_t count : {int64_t{1}, int64_t{3}, capacity - past}) {
      if (past + count > capacity)
        continue;
      SCOPED_TRACE(fmt::format("{} tokens after {}", count, past));
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
  auto expected = openSession(exported, toolkit.kernels, {});
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
  auto expected = openSession(exported, toolkit.kernels, options);
  auto found = open(pyramid, options);
  // Whole blocks are adopted, and then cropped into.
  for (Session* session : {expected.get(), found.get()}) {
    stepAlike(*session, 24);
    successOrThrow(session->crop(13));
  }
  EXPECT_EQ(found->latestVariant(), 0u);
  expectSame(stepAlike(*expected, 1, 4), stepAlike(*found, 1, 4));
  EXPECT_EQ(found->latestVariant(), 2u);
  auto expectedFork = valueOrThrow(expected->fork());
  auto foundFork = valueOrThrow(found->fork());
  expectSame(stepAlike(*expected, 17, 2), stepAlike(*found, 17, 2));
  expectSame(stepAlike(*expectedFork, 2, 3), stepAlike(*foundFork, 2, 3));
  for (Session* session : {expectedFork.get(), foundFork.get()})
    successOrThrow(session->reorder({2, 0, 2}));
  expectSame(stepAlike(*expectedFork, 1, 5), stepAlike(*foundFork, 1, 5));
  for (Session* session : {expectedFork.get(), foundFork.get()})
    successOrThrow(session->reorder({1, 0, 1, 0}));
  expectSame(stepAlike(*expectedFork, 9, 6), stepAlike(*foundFork, 9, 6));
  expectSameCaches(*expected, *found);
  expectSameCaches(*expectedFork, *foundFork);
  for (Session* session : {expected.get(), found.get()}) {
    successOrThrow(session->crop(5));
    stepAlike(*session, 3, 8);
    successOrThrow(session->reset());
  }
  expectSame(stepAlike(*expected, 5, 9), stepAlike(*found, 5, 9));
}

TEST_P(PyramidTest, SavedFrozenAndThawedSessionsGoOn) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel pyramid = pyramidOf(8, 64);
  SessionOptions options;
  options.batch = 2;
  auto expected = openSession(exported, toolkit.kernels, options);
  auto session = open(pyramid, options);
  stepAlike(*expected, 19);
  stepAlike(*session, 19);
  const std::string file = testing::TempDir() + "/" + GetParam().name + ".pyramid";
  successOrThrow(session->save(file));
  auto loaded = open(pyramid, options);
  stepAlike(*loaded, 4, 9);
  successOrThrow(loaded->load(file));
  expectSameCaches(*session, *loaded);
  successOrThrow(loaded->freeze());
  auto fork = valueOrThrow(loaded->fork());
  successOrThrow(loaded->thaw());
  successOrThrow(fork->thaw());
  StepResult wanted = stepAlike(*expected, 2, 3);
  for (Session* each : {session.get(), loaded.get(), fork.get()})
    expectSame(wanted, stepAlike(*each, 2, 3));
  expectSameCaches(*session, *fork);
}

TEST_P(PyramidTest, TooManyTokensAreAnErrorThatChangesNothing) {
  DrivenModel pyramid = pyramidOf(8, 20);
  auto session = open(pyramid);
  stepAlike(*session, 19);
  DecoderStep tooMany;
  tooMany.pastLength = 19;
  tooMany.tokens = {{1, 2}};
  auto refused = stepDecoder(*session, tooMany);
  ASSERT_FALSE(refused);
  EXPECT_THAT(takeDiagnostic(refused.takeError()).message, HasSubstr("do not fit"));
  EXPECT_EQ(session->length(), 19);
  stepAlike(*session, 1);
}

/// What is written is what runs, and constants are written once.
class WrittenPyramidTest : public PyramidTest {
protected:
  void write(int64_t size, int64_t capacity) {
    DrivenModel pyramid = pyramidOf(size, capacity);
    nameVariants(pyramid.manifest, folder.path("m.onnx"));
    pyramid.model->setMetadata(manifestKey, pyramid.manifest.json());
    OutputFiles files;
    successOrThrow(prepareVariants(*pyramid.model, pyramid.manifest, folder.path("m.onnx"),
                                   ExportOptions(), files));
    successOrThrow(files.commit());
  }
  PreparedModel read() { return valueOrThrow(prepareModel(folder.path("m.onnx"), toolkit)); }
  std::unique_ptr<Session> openFiles(const PreparedModel& read) {
    SessionOptions options;
    options.poison = true;
    return valueOrThrow(Session::create(*read.model, toolkit.kernels, read.manifest, options));
  }
  std::string problemOfStep(Session& session) {
    DecoderStep one;
    one.pastLength = session.length();
    one.tokens = {{1}};
    auto result = stepDecoder(session, one);
    return result ? "" : takeDiagnostic(result.takeError()).str();
  }

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
  auto expected = openSession(exported, toolkit.kernels, {});
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
class PyramidCorpusTest : public CorpusTest {
protected:
  Toolkit toolkit;
};

TEST_F(PyramidCorpusTest, EveryModelThatTakesItEqualsItsReferences) {
  std::vector<std::string> models;
  for (const std::string& name : foldersWith(corpusFolder(), "ref"))
    models.push_back((corpusFolder() / name / "model.onnx").string());
  ASSERT_FALSE(models.empty());
  auto compared = [&](const char* target) {
    return valueOrThrow(compareWithReferences(models, {ModelForm::Shared}, 1, toolkit, target));
  };
  // A pyramid takes what blocks take.
  const ReferenceTable blocks = compared("blocks:5");
  EXPECT_GE(blocks.count(ReferenceVerdict::Equal), 50u);
  for (const ReferenceRow& row : blocks.rows)
    for (const ReferenceResult& result : row.results)
      EXPECT_TRUE(result.verdict == ReferenceVerdict::Equal ||
                  result.verdict == ReferenceVerdict::Refused ||
                  result.verdict == ReferenceVerdict::NotCompared)
          << row.model << " " << row.name << ": " << result.reason;
  for (const char* target : {"pyramid:5", "pyramid:3"}) {
    const ReferenceTable pyramid = compared(target);
    ASSERT_EQ(pyramid.rows.size(), blocks.rows.size());
    for (size_t i = 0; i < blocks.rows.size(); ++i) {
      const ReferenceRow& row = pyramid.rows[i];
      ASSERT_EQ(row.results.size(), blocks.rows[i].results.size());
      for (size_t j = 0; j < row.results.size(); ++j)
        EXPECT_EQ(row.results[j].verdict, blocks.rows[i].results[j].verdict)
            << row.model << " " << row.name << ": " << row.results[j].reason;
    }
  }
}

} // namespace
} // namespace kvopt
