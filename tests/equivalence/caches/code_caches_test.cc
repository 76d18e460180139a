// Decoders whose caches hold codes with constant scales, as exported: what a session does with such
// caches leaves no trace in what the model computes.
#include "driver/generate/decoder.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

#include <cstring>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

struct CodesModel {
  DecoderSpelling spelling;
  int64_t bits;
  bool columns;
  DecoderKind kind = DecoderKind::Llama;
  DecoderCache cache = DecoderCache::Growing;
};

class CodeCaches : public testing::TestWithParam<CodesModel> {
protected:
  CodeCaches() {
    DecoderSpec spec;
    spec.kind = GetParam().kind;
    spec.spelling = GetParam().spelling;
    spec.codeBits = GetParam().bits;
    spec.columnScales = GetParam().columns;
    spec.cache = GetParam().cache;
    spec.maxPositions = 64;
    spec.window = spec.kind == DecoderKind::Window ? 5 : 0;
    spec.heads = 4;
    spec.kvHeads = 2;
    driven.model = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
    successOrThrow(inferShapes(driven.model->graph()));
    driven.manifest = valueOrThrow(drivingManifest(*driven.model, toolkit));
  }

  std::unique_ptr<Session> open() {
    SessionOptions options;
    options.batch = 2;
    options.capacity = GetParam().cache == DecoderCache::Static ? 0 : 40;
    return openSession(driven, toolkit.kernels, options);
  }

  static std::string bytesOf(const TensorView& view) {
    std::string bytes(static_cast<size_t>(view.byteSize()), '\0');
    copyElements(view, TensorView::contiguous(view.element, view.shape,
                                              reinterpret_cast<std::byte*>(bytes.data())));
    return bytes;
  }
  /// Of the rows of tokens: a static cache keeps what is cropped.
  static std::string contents(const Session& session) {
    std::string bytes;
    for (size_t i = 0; i < session.cacheCount(); ++i)
      bytes += bytesOf(sliceAxis(session.cacheView(i), 2, 0, session.length()));
    return bytes;
  }
  /// The outputs of steps of one token up to `length`.
  static std::string stepsTo(Session& session, int64_t length, int64_t seed = 1) {
    std::string bytes;
    while (session.length() < length) {
      const StepResult result = stepAlike(session, session.length() == 0 ? 5 : 1, seed);
      for (const NamedTensor& output : result.outputs)
        bytes += bytesOf(output.tensor.view);
    }
    return bytes;
  }

  Toolkit toolkit;
  DrivenModel driven;
};

TEST_P(CodeCaches, AreOfTheirElementType) {
  const ElementType element = GetParam().bits == 4 ? ElementType::UInt8 : ElementType::Int8;
  ASSERT_EQ(driven.manifest.caches.size(), 4u);
  for (const ManifestCache& cache : driven.manifest.caches) {
    EXPECT_EQ(cache.dtype, element) << cache.past;
    EXPECT_EQ(cache.sequenceAxis, 2);
    ASSERT_EQ(cache.shape.size(), 4u);
    EXPECT_EQ(std::get<int64_t>(cache.shape[3]), GetParam().bits == 4 ? 8 : 16);
  }
  auto session = open();
  stepsTo(*session, 7);
  for (size_t i = 0; i < session->cacheCount(); ++i)
    EXPECT_EQ(session->cacheView(i).element, element);
}

/// A chunk attends to the codes of its own rows, as a token that comes later does.
TEST_P(CodeCaches, TakeTokensInStepsOfAnySize) {
  auto whole = open();
  auto parts = open();
  const StepResult prompt = stepAlike(*whole, 9);
  stepAlike(*parts, 1);
  while (parts->length() < 9)
    stepAlike(*parts, 1);
  const std::string once = contents(*whole), oneByOne = contents(*parts);
  ASSERT_EQ(once.size(), oneByOne.size());
  size_t different = 0;
  for (size_t i = 0; i < once.size(); ++i)
    different += once[i] != oneByOne[i];
  // Numbers halfway between two codes may go to either of them.
  EXPECT_LE(different, once.size() / 200);
}

TEST_P(CodeCaches, GoOnFromAFile) {
  TemporaryFolder folder;
  auto straight = open();
  stepsTo(*straight, 8);
  const std::string expected = stepsTo(*straight, 12);
  auto saved = open();
  stepsTo(*saved, 8);
  successOrThrow(saved->save(folder.path("cache.kv")));
  auto loaded = open();
  successOrThrow(loaded->load(folder.path("cache.kv")));
  EXPECT_EQ(loaded->length(), 8);
  EXPECT_TRUE(stepsTo(*loaded, 12) == expected);
  EXPECT_TRUE(contents(*loaded) == contents(*straight));
}

TEST_P(CodeCaches, AreForkedAndCropped) {
  auto original = open();
  stepsTo(*original, 8);
  auto fork = valueOrThrow(original->fork());
  stepsTo(*fork, 11, 2);
  const std::string expected = stepsTo(*original, 11);
  successOrThrow(original->crop(8));
  successOrThrow(fork->crop(8));
  EXPECT_TRUE(contents(*original) == contents(*fork));
  EXPECT_TRUE(stepsTo(*original, 11) == expected);
  EXPECT_TRUE(stepsTo(*fork, 11) == expected);
}

TEST_P(CodeCaches, AreReordered) {
  auto first = open();
  stepsTo(*first, 8);
  const std::string before = contents(*first);
  successOrThrow(first->reorder({1, 0}));
  EXPECT_FALSE(contents(*first) == before);
  successOrThrow(first->reorder({1, 0}));
  EXPECT_TRUE(contents(*first) == before);
}

TEST_P(CodeCaches, AreVerified) {
  const VerificationReport report =
      valueOrThrow(verifyModels(*driven.model, driven.manifest, *driven.model, driven.manifest,
                                quickVerification(), 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
}

INSTANTIATE_TEST_SUITE_P(
    Generated, CodeCaches,
    testing::Values(CodesModel{DecoderSpelling::GroupQueryAttention, 8, false},
                    CodesModel{DecoderSpelling::GroupQueryAttention, 8, true},
                    CodesModel{DecoderSpelling::GroupQueryAttention, 4, false},
                    CodesModel{DecoderSpelling::GroupQueryAttention, 4, true, DecoderKind::Window},
                    CodesModel{DecoderSpelling::TorchScript, 8, true},
                    CodesModel{DecoderSpelling::Dynamo, 8, false},
                    CodesModel{DecoderSpelling::Dynamo, 8, true, DecoderKind::Llama,
                               DecoderCache::Static}),
    [](const auto& parameter) {
      const CodesModel& model = parameter.param;
      return fmt::format("{}{}bits{}{}{}",
                         model.spelling == DecoderSpelling::GroupQueryAttention ? "Fused"
                         : model.spelling == DecoderSpelling::Dynamo            ? "Dynamo"
                                                                                : "Script",
                         model.bits, model.columns ? "Columns" : "",
                         model.kind == DecoderKind::Window ? "Window" : "",
                         model.cache == DecoderCache::Static ? "Static" : "");
    });

} // namespace
} // namespace kvopt
