// GroupQueryAttention over caches of codes: that models are the exported ones but for the rounding
// of rows, that scales are those of what was run, and that what is wrong is found out.
#include "passes/targets/ort_gqa/code_caches.h"

#include "driver/synthetic/decoder.h"
#include "driver/verify/calibration.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

#include <gmock/gmock.h>

#include <cmath>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

class GroupCodes : public ShippedModelTest {
protected:
  TextPlan text(int64_t count = 300) const {
    TextPlan plan;
    plan.context = 64;
    plan.chunk = 16;
    for (int64_t i = 0; i < count; ++i)
      plan.tokens.push_back((i * i * 7 + 3 * i) % 32);
    return plan;
  }

  DrivenModel withCodes(int bits) const {
    DrivenModel driven = rewritten(path(), toolkit, "", "ort-gqa");
    const targets::CodeScales scales =
        valueOrThrow(calibrate(*driven.model, driven.manifest, text(), bits, toolkit));
    successOrThrow(targets::keepCodes(*driven.model, driven.manifest, scales));
    return driven;
  }

  VerificationReport verified(const DrivenModel& exported, const DrivenModel& other,
                              Padding padding = Padding::None) const {
    EquivalencePlan plan;
    plan.decodeSteps = 10;
    plan.padding = padding;
    return valueOrThrow(verifyModels(*exported.model, exported.manifest, *other.model,
                                     other.manifest, plan, 1, toolkit));
  }
};

TEST_P(GroupCodes, EqualTheExportedModelButForTheRoundingOfRows) {
  const DrivenModel exported = asExported(path(), toolkit);
  for (int bits : {8, 4}) {
    const DrivenModel codes = withCodes(bits);
    for (Padding padding : {Padding::None, Padding::Left, Padding::Right}) {
      SCOPED_TRACE(formatted("{} bits, padding {}", bits, static_cast<int>(padding)));
      const VerificationReport report = verified(exported, codes, padding);
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      EXPECT_EQ(report.cacheBytesCopied, 0);
      ASSERT_TRUE(report.quantization);
      EXPECT_EQ(report.quantization->bits, bits);
      EXPECT_EQ(report.quantization->sites, GetParam().sites);
      EXPECT_TRUE(report.quantization->rowsIdentical);
      EXPECT_LT(report.quantization->siteDifference, 1e-5);
      EXPECT_GT(report.quantization->deviation.largest, 0);
    }
  }
}

TEST_P(GroupCodes, AreDescribedByTheManifest) {
  for (int bits : {8, 4}) {
    const DrivenModel plain = rewritten(path(), toolkit, "", "ort-gqa");
    const DrivenModel codes = withCodes(bits);
    ASSERT_EQ(codes.manifest.caches.size(), plain.manifest.caches.size());
    for (size_t i = 0; i < codes.manifest.caches.size(); ++i) {
      const ManifestCache& cache = codes.manifest.caches[i];
      const int64_t width = std::get<int64_t>(plain.manifest.caches[i].shape[3]);
      EXPECT_EQ(cache.dtype, bits == 8 ? ElementType::Int8 : ElementType::UInt8);
      EXPECT_EQ(std::get<int64_t>(cache.shape[3]), bits == 8 ? width : width / 2);
      EXPECT_FALSE(cache.rotation.has_value());
      EXPECT_EQ(codes.model->graph().findValue(cache.past)->type().elementType(), cache.dtype);
    }
    EXPECT_FALSE(codes.manifest.rotations.has_value());
    EXPECT_EQ(valueOrThrow(parseManifest(*codes.model->findMetadata(manifestKey))).json(),
              codes.manifest.json());
    EXPECT_EQ(codes.model->graph().inputs().size(), plain.model->graph().inputs().size());
  }
}

/// The largest number of a column becomes the largest code.
TEST_P(GroupCodes, HaveTheScalesOfWhatWasRun) {
  const DrivenModel driven = rewritten(path(), toolkit, "", "ort-gqa");
  TextPlan plan = text(60);
  const targets::CodeScales scales =
      valueOrThrow(calibrate(*driven.model, driven.manifest, plan, 8, toolkit));
  SessionOptions options;
  options.capacity = 64;
  auto session = openSession(driven, toolkit.runner->kernels(), options);
  for (int64_t token : plan.tokens) {
    DecoderStep step;
    step.pastLength = session->length();
    step.tokens = {{token}};
    valueOrThrow(stepDecoder(*session, step));
  }
  ASSERT_EQ(scales.ofPast.size(), session->cacheCount());
  for (size_t i = 0; i < session->cacheCount(); ++i) {
    const Tensor viewRows = valueOrThrow(session->cacheRows(i));
    const TensorView view = viewRows.view;
    const std::vector<float>& found = scales.ofPast.at(session->cacheInfo(i).past);
    ASSERT_EQ(static_cast<int64_t>(found.size()), view.shape[1] * view.shape[3]);
    for (int64_t head = 0; head < view.shape[1]; ++head)
      for (int64_t column = 0; column < view.shape[3]; ++column) {
        float largest = 0;
        for (int64_t row = 0; row < view.shape[2]; ++row)
          largest = std::max(
              largest, std::fabs(view.as<float>()[head * view.strides[1] + row * view.strides[2] +
                                                  column * view.strides[3]]));
        // Steps of several tokens sum in another order.
        EXPECT_NEAR(found[static_cast<size_t>(head * view.shape[3] + column)], largest / 127,
                    1e-5f * largest);
      }
  }
}

TEST_P(GroupCodes, ThatAreReadWronglyAreFoundOut) {
  const DrivenModel exported = asExported(path(), toolkit);
  const DrivenModel codes = withCodes(8);
  for (Node& node : codes.model->graph().nodes())
    if (node.is("com.microsoft::GroupQueryAttention"))
      node.setAttribute("scale", Attribute::ofFloat(1.1f * node.floatAttr("scale", 1.0f)));
  EXPECT_FALSE(verified(exported, codes).equal());
}

TEST_P(GroupCodes, WithScalesThatAreNoNumbersAreDifferent) {
  const DrivenModel exported = asExported(path(), toolkit);
  const DrivenModel codes = withCodes(8);
  for (Node& node : codes.model->graph().nodes())
    if (node.is("com.microsoft::GroupQueryAttention")) {
      const auto width = static_cast<size_t>(node.operand(13)->constant()->elementCount());
      std::vector<float> scales(width, 0.1f);
      scales[width / 2] = HUGE_VALF;
      node.setOperand(13, &codes.model->graph().addConstant("scales", floatTensor(scales)));
    }
  EXPECT_FALSE(verified(exported, codes).equal());
}

/// What is not as the operator is defined is an error, not a crash.
TEST_P(GroupCodes, WithoutAPastAreAnError) {
  const DrivenModel exported = asExported(path(), toolkit);
  const DrivenModel codes = withCodes(8);
  for (Node& node : codes.model->graph().nodes())
    if (node.is("com.microsoft::GroupQueryAttention"))
      node.setOperand(3, nullptr);
  EXPECT_THROW(verified(exported, codes), std::runtime_error);
}

TEST_P(GroupCodes, NeedScalesAndATextOfTheVocabulary) {
  using testing::HasSubstr;
  DrivenModel driven = rewritten(path(), toolkit, "", "ort-gqa");
  auto messageOf = [](llvm::Error error) {
    return error ? takeDiagnostic(std::move(error)).str() : std::string();
  };
  EXPECT_THAT(messageOf(targets::keepCodes(*driven.model, driven.manifest, {})),
              HasSubstr("there are no scales for the rows of"));
  TextPlan plan = text(10);
  plan.tokens[4] = int64_t{1} << 40;
  EXPECT_THAT(messageOf(calibrate(*driven.model, driven.manifest, plan, 8, toolkit).takeError()),
              HasSubstr("outside of the vocabulary"));
}

/// Lengths by batch row come from the mask: rows behind a row's own are not written.
TEST(RaggedGroupCodes, EqualTheExportedModelButForTheRoundingOfRows) {
  Toolkit toolkit;
  TemporaryFolder folder;
  DecoderSpec spec;
  spec.spelling = DecoderSpelling::GroupQueryAttention;
  spec.vocabulary = 32;
  const std::string path = folder.path("model.onnx");
  successOrThrow(exportModel(*generateDecoder(toolkit.ops, valueOrThrow(resolved(spec))), path));
  const DrivenModel exported = asExported(path, toolkit);
  for (int bits : {8, 4}) {
    DrivenModel codes = rewritten(path, toolkit, "", "ort-gqa");
    TextPlan plan;
    for (int64_t i = 0; i < 300; ++i)
      plan.tokens.push_back((i * i * 7 + 3 * i) % 32);
    successOrThrow(targets::keepCodes(
        *codes.model, codes.manifest,
        valueOrThrow(calibrate(*codes.model, codes.manifest, plan, bits, toolkit))));
    for (Padding padding : {Padding::None, Padding::Left, Padding::Right}) {
      SCOPED_TRACE(formatted("{} bits, padding {}", bits, static_cast<int>(padding)));
      EquivalencePlan steps;
      steps.decodeSteps = 10;
      steps.padding = padding;
      const VerificationReport report = valueOrThrow(verifyModels(
          *exported.model, exported.manifest, *codes.model, codes.manifest, steps, 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      ASSERT_TRUE(report.quantization);
      EXPECT_TRUE(report.quantization->rowsIdentical);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, GroupCodes, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
