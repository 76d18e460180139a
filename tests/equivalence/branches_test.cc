// Decoders that are two in one: an If with a branch for the first step.
#include "driver/synthetic/decoder.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

class MergedDecoderTest : public testing::TestWithParam<DecoderSpelling> {
protected:
  MergedDecoderTest() {
    DecoderSpec decoder;
    decoder.spelling = GetParam();
    decoder.kvHeads = 2;
    decoder.merged = true;
    auto model = generateDecoder(toolkit.ops, valueOrThrow(resolved(decoder)));
    successOrThrow(exportModel(*model, path));
  }

  Toolkit toolkit;
  TemporaryFolder folder;
  std::string path = folder.path("merged.onnx");
};

TEST_P(MergedDecoderTest, EveryAttentionOfBothBranchesIsFound) {
  RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
  ASSERT_EQ(recovered.context->sites.size(), 4u);
  unsigned fromStart = 0;
  for (const AttentionSite& site : recovered.context->sites) {
    EXPECT_TRUE(site.isMatched()) << site.failure->str();
    ASSERT_TRUE(site.hasCache());
    EXPECT_TRUE(site.key->past->isGraphInput());
    EXPECT_EQ(&site.key->output->graph(), &recovered.model->graph());
    fromStart += site.key->fromStart ? 1 : 0;
  }
  EXPECT_EQ(fromStart, 2u);
}

TEST_P(MergedDecoderTest, BothBranchesWriteIntoOneBuffer) {
  DrivenModel exported = asExported(path, toolkit);
  DrivenModel inPlace = rewritten(path, toolkit);
  ASSERT_EQ(exported.manifest.lengths.size(), 1u);
  EXPECT_EQ(exported.manifest.lengths[0].input, "use_cache_branch");
  EXPECT_EQ(exported.manifest.lengths[0].feed, LengthFeed::HasPast);
  EXPECT_EQ(inPlace.manifest.lengths.size(), 2u);
  EXPECT_EQ(inPlace.manifest.caches.size(), 4u);
  EquivalencePlan plan;
  plan.prompt = 5;
  plan.chunks = {3, 1};
  plan.decodeSteps = 6;
  plan.tolerance = {1e-5, 0};
  VerificationReport report = valueOrThrow(verifyModels(
      *exported.model, exported.manifest, *inPlace.model, inPlace.manifest, plan, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  EXPECT_EQ(report.cacheBytesCopied, 0);
  EXPECT_GT(report.cacheBytesWritten, 0);
}

INSTANTIATE_TEST_SUITE_P(Spellings, MergedDecoderTest,
                         testing::Values(DecoderSpelling::TorchScript, DecoderSpelling::Dynamo),
                         [](const testing::TestParamInfo<DecoderSpelling>& parameter) {
                           return parameter.param == DecoderSpelling::Dynamo ? "Dynamo"
                                                                             : "TorchScript";
                         });

} // namespace
} // namespace kvopt
