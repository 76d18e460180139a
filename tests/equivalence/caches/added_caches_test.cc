// Decoders without caches that get them give, token by token, what they give for whole sequences.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// A decoder of two layers with learned positions; `mask` is the masks' last operand, `more`
/// changes the hidden states `sum` to `last`.
std::string modelText(llvm::StringRef mask, llvm::StringRef more) {
  std::string layers;
  for (int i = 0; i < 2; ++i)
    layers += formatted(R"(
  q_{0} = MatMul (h_{0}, wq)
  k_{0} = MatMul (h_{0}, wk)
  v_{0} = MatMul (h_{0}, wv)
  qr_{0} = Reshape (q_{0}, q_shape)
  kr_{0} = Reshape (k_{0}, kv_shape)
  vr_{0} = Reshape (v_{0}, kv_shape)
  qt_{0} = Transpose <perm = [0, 2, 1, 3]> (qr_{0})
  kt_{0} = Transpose <perm = [0, 2, 1, 3]> (kr_{0})
  vt_{0} = Transpose <perm = [0, 2, 1, 3]> (vr_{0})
  o_{0} = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (qt_{0}, kt_{0}, vt_{0}{1})
  ot_{0} = Transpose <perm = [0, 2, 1, 3]> (o_{0})
  om_{0} = Reshape (ot_{0}, o_shape)
  s_{0} = Add (h_{0}, om_{0})
  h_{2} = Tanh (s_{0}))",
                        i, mask.str(), i + 1);
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, int64[B, S] attention_mask, float[50, 16] table, float[64, 16] places,
         float[16, 16] wq, float[16, 8] wk, float[16, 8] wv, float[16, 10] wo) => (float[B, S, 10] logits)
{{
  q_shape = Constant <value_ints = [0, 0, 4, 4]> ()
  kv_shape = Constant <value_ints = [0, 0, 2, 4]> ()
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  second = Constant <value_ints = [1]> ()
  head_axes = Constant <value_ints = [1, 2]> ()
  extents = Shape (input_ids)
  count = Gather (extents, one)
  count_as_float = Cast <to = 1> (count)
  range = Range (zero, count, one)
  place = Gather (places, range)
  embedded = Gather (table, input_ids)
  h_0 = Add (embedded, place)
  padding = Unsqueeze (attention_mask, head_axes)
  mask = Cast <to = 9> (padding)
{}
  sum = Identity (h_2)
{}
  logits = MatMul (last, wo)
}})",
                   layers, more.str());
}

class AddedCaches : public testing::Test {
protected:
  RewriteResult added(const std::string& path, const std::string& target,
                      VerificationExtent extent) {
    RewriteRequest request;
    request.addCaches = true;
    request.form = valueOrThrow(presetForm(target));
    request.verification = extent;
    return valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  }

  /// Every step of every length equals the whole sequence's results.
  void expectEqual(const std::string& path) {
    for (const char* target : {"primitive", "kvopt", "onnx24"}) {
      SCOPED_TRACE(path + " --to " + target);
      const RewriteResult result = added(path, target, VerificationExtent::Full);
      const auto* model = std::get_if<RewrittenModel>(&result);
      ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
      ASSERT_TRUE(model->verification);
      EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
      EXPECT_TRUE(runsOf(*model).comparison.tokensEqual);
      // Prefill, chunks, and single tokens after them.
      EXPECT_GT(runsOf(*model).comparison.steps.size(), 10U);
      EXPECT_GT(runsOf(*model).comparison.steps.back().pastTokens, 0);
      EXPECT_EQ(runsOf(*model).cacheBytesCopied, 0);
      EXPECT_FALSE(model->manifest.caches.empty());
    }
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(AddedCaches, GiveTheResultsOfWholeSequences) {
  for (const char* mask : {"", ", mask"})
    expectEqual(writtenModel(modelText(mask, "  last = Identity (sum)"), toolkit, folder));
}

TEST_F(AddedCaches, AreRefusedWhereTokensAreMixed) {
  const std::pair<const char*, std::string> models[] = {
      {"tokens-mixed",
       modelText("",
                 "  mean = ReduceMean <axes = [1], keepdims = 1> (sum)\n  last = Sub (sum, mean)")},
      {"tokens-mixed",
       modelText("", "  length = Log (count_as_float)\n  last = Mul (sum, length)")},
      {"tokens-mixed", modelText("", "  running = CumSum (sum, one)\n  last = Add (sum, running)")},
  };
  for (const auto& [reason, text] : models) {
    const RewriteResult result =
        added(writtenModel(text, toolkit, folder), "primitive", VerificationExtent::Off);
    const auto* refused = std::get_if<RefusedModel>(&result);
    ASSERT_TRUE(refused);
    EXPECT_NE(refused->message.find(reason), std::string::npos) << refused->message;
  }
}

TEST_F(AddedCaches, AreRefusedWhereAttentionIsNotCausal) {
  std::string text = modelText("", "  last = Identity (sum)");
  for (size_t at = text.find("causal = 1"); at != std::string::npos; at = text.find("causal = 1"))
    text.replace(at, 10, "causal = 0");
  const RewriteResult result =
      added(writtenModel(text, toolkit, folder), "primitive", VerificationExtent::Off);
  const auto* refused = std::get_if<RefusedModel>(&result);
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->message.find("mask-noncausal"), std::string::npos) << refused->message;
}

TEST_F(AddedCaches, AreNotAddedToModelsThatHaveThem) {
  const RewriteResult result = added(modelFolder("llama_gqa-ts14-eager") + "/model.onnx",
                                     "primitive", VerificationExtent::Off);
  const auto* refused = std::get_if<RefusedModel>(&result);
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->message.find("attention with a cache"), std::string::npos) << refused->message;
}

TEST_F(AddedCaches, OfTheCorpus) {
  if (!std::filesystem::is_directory(corpusFolder()))
    GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  for (const char* name : {"gpt2-ts14-eager-nocache", "gptneox-dynamo23-sdpa-nocache",
                           "llama_gqa-dynamo18-sdpa-nocache", "llama_gqa-ts17-eager-nocache",
                           "llama_gqa-ts17-sdpa-nocache-mask", "qwen2-dynamo23-sdpa-nocache"})
    expectEqual((corpusFolder() / name / "model.onnx").string());
  // Numbers that are added for each key, and positions that the mask counts.
  for (const char* name : {"bloom-dynamo20-None-nocache-mask", "n_nanogpt-ts14-nocache-own",
                           "opt-ts17-sdpa-nocache-mask", "qwen3-dynamo23-sdpa-nocache-mask"})
    if (const auto folder3 = corpusFolder() / ".." / "corpus3";
        std::filesystem::is_directory(folder3))
      expectEqual((folder3 / name / "model.onnx").string());
}

} // namespace
} // namespace kvopt
