// Decoders that ONNX Runtime's optimizer wrote for steps of one token: what is rewritten in place
// gives the same, step by step, as the operator itself.
#include "support/format.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

struct MaskedDecoder {
  const char* name;
  const char* past;       ///< type of both pasts
  const char* present;    ///< and of both presents
  const char* attributes; ///< of the operator
  const char* operands;   ///< after query, key and value
};

const MaskedDecoder maskedDecoders[] = {
    {"buffer", "float[B, 4, 24, 4]", "float[B, 4, 24, 4]", "past_present_share_buffer = 1",
     "mask, , past_k, past_v, past_sequence_length, , , bias"},
    {"unmasked_buffer", "float[B, 4, 24, 4]", "float[B, 4, 24, 4]", "past_present_share_buffer = 1",
     ", , past_k, past_v, past_sequence_length"},
    {"growing", "float[B, 4, P, 4]", "float[B, 4, N, 4]", "scale = 0.3",
     "mask, , past_k, past_v, , , , bias"},
    {"unmasked_growing", "float[B, 4, P, 4]", "float[B, 4, N, 4]", "output_qk = 0",
     ", , past_k, past_v"},
};

std::string maskedDecoderText(const MaskedDecoder& c) {
  return formatted(R"(<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
decoder (int64[B, 1] input_ids, int64[B, T] attention_mask, int32[1] past_sequence_length, {0} past_k, {0} past_v,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 16] wk, float[1, 16, 16] wv,
         float[1, 16, 10] wo, float[48] bias)
  => (float[B, 1, 10] logits, {1} c_k, {1} c_v)
{{
{hidden}
  q = MatMul (hidden, wq)
  k = MatMul (hidden, wk)
  v = MatMul (hidden, wv)
  mask = Cast <to = 6> (attention_mask)
  o, c_k, c_v = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 4, {2}> (q, k, v, {3})
  logits = MatMul (o, wo)
}})",
                   c.past, c.present, c.attributes, c.operands, named("hidden", decoderHidden));
}

class DecoderMaskedCaches : public testing::TestWithParam<MaskedDecoder> {
protected:
  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_P(DecoderMaskedCaches, AreOverwrittenInPlace) {
  const std::string path = writtenModel(maskedDecoderText(GetParam()), toolkit, folder);
  const DrivenModel exported = asExported(path, toolkit);
  EquivalencePlan plan;
  plan.prompt = 1;
  plan.chunks = {};
  plan.decodeSteps = 9;
  plan.vocabulary = 50;
  plan.tolerance = {1e-6, 0};
  for (const char* target : {"kvopt", "onnx24"}) {
    SCOPED_TRACE(target);
    const DrivenModel inPlace = rewritten(path, toolkit, "", target);
    EXPECT_EQ(inPlace.manifest.caches.size(), 2U);
    for (const ManifestCache& cache : inPlace.manifest.caches)
      EXPECT_TRUE(cache.isOneBuffer()) << cache.past;
    for (const Node& node : inPlace.model->graph().nodes())
      EXPECT_FALSE(node.is("com.microsoft::DecoderMaskedMultiHeadAttention"));
    const VerificationReport report = valueOrThrow(verifyModels(
        *exported.model, exported.manifest, *inPlace.model, inPlace.manifest, plan, 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_EQ(report.comparison.steps.size(), 10U);
    EXPECT_EQ(report.cacheBytesCopied, 0);
    // Two caches of four heads for two batch rows; 10 tokens of 4 numbers.
    EXPECT_EQ(report.cacheBytesWritten, 2 * 4 * 2 * 10 * 4 * 4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecoderMaskedCaches, testing::ValuesIn(maskedDecoders),
                         [](const testing::TestParamInfo<MaskedDecoder>& parameter) {
                           return std::string(parameter.param.name);
                         });

TEST(RefusedDecoderMaskedCaches, OfBeamsAreNamed) {
  const Toolkit toolkit;
  const TemporaryFolder folder;
  MaskedDecoder model = maskedDecoders[1];
  model.operands = ", , past_k, past_v, past_sequence_length, , indirection";
  std::string text = maskedDecoderText(model);
  text.insert(text.find("float[48] bias"), "int32[A, 3, 24] indirection, ");
  pattern::NearMissList misses = listenToRaising(toolkit);
  const RecoveredModel recovered = valueOrThrow(
      recoverModel(writtenModel(text, toolkit, folder), toolkit, {.nearMisses = &misses}));
  ASSERT_EQ(recovered.context->sites.size(), 1U);
  ASSERT_TRUE(recovered.context->sites.front().failure);
  const auto failures =
      targets::refusals(*toolkit.targets.find("kvopt"), recovered.context->sites, *recovered.model);
  ASSERT_EQ(failures.size(), 1U);
  ASSERT_TRUE(failures.front());
  EXPECT_EQ(pattern::reasonName(failures.front()->code), "cache-reordered");
  EXPECT_NE(failures.front()->str().find("cache_indirection"), std::string::npos);
}

} // namespace
} // namespace kvopt
