// Models that count the tokens of each batch row by a mask, rewritten for batches that are never
// padded: their caches may then be in blocks or rings, which have one length for all rows.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "ir/text/reader.h"
#include "support/format.h"
#include "support/string_ends.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// A decoder of one layer of GroupQueryAttention, whose lengths are counted as `count` says.
std::string countingText(const std::string& attributes, const std::string& count) {
  return formatted(R"(<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
decoder (int64[B, S] input_ids, int64[B, T] attention_mask, float[B, 2, P, 8] past_k, float[B, 2, P, 8] past_v,
         float[1, 1, 32] table, float[1, 32, 32] wq, float[1, 32, 16] wk, float[1, 32, 16] wv, float[1, 32, 10] wo,
         float[64, 4] cosine, float[64, 4] sine)
  => (float[B, S, 10] logits, float[B, 2, T, 8] keys, float[B, 2, T, 8] values)
{{
{0}
  q = MatMul (hidden, wq)
  k = MatMul (hidden, wk)
  v = MatMul (hidden, wv)
  none = Constant <value_ints = [0]> ()
  one = Constant <value_ints = [1]> ()
  one_index = Constant <value_int = 1> ()
{1}
  last_position = Sub (count, one)
  lengths = Cast <to = 6> (last_position)
  mask_shape = Shape (attention_mask)
  columns = Gather (mask_shape, one_index)
  total = Cast <to = 6> (columns)
  o, keys, values = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, do_rotary = 1{2}> (q, k, v, past_k, past_v, lengths, total, cosine, sine)
  logits = MatMul (o, wo)
}})",
                   decoderHidden, count, attributes);
}

constexpr const char* maskSum = "  count = ReduceSum <keepdims = 0> (attention_mask, one)\n";

class UnpaddedCaches : public testing::Test {
protected:
  RewriteResult written(const std::string& text, const std::string& target,
                        const std::string& padding = "none") {
    RewriteRequest request;
    request.form = valueOrThrow(presetForm(target));
    request.padding = padding == "none" ? PaddedRows::None : PaddedRows::Any;
    if (!startsWith(target, "ring"))
      request.capacity = 64;
    request.verification = VerificationExtent::Full;
    return valueOrThrow(rewrite(
        valueOrThrow(openModel(writtenModel(text, toolkit, folder), toolkit)), request, toolkit));
  }

  std::string refusal(const std::string& text, const std::string& target,
                      const std::string& padding = "none") {
    const RewriteResult result = written(text, target, padding);
    const auto* refused = std::get_if<RefusedModel>(&result);
    return refused ? refused->message : "";
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(UnpaddedCaches, AreWrittenForTargetsOfOneLength) {
  for (const char* target : {"blocks:8", "blocks-plain:8", "pyramid:16", "ring", "onnx24-ring:4"}) {
    SCOPED_TRACE(target);
    const bool isRing = llvm::StringRef(target).contains("ring");
    const RewriteResult result =
        written(countingText(isRing ? ", local_window_size = 6" : "", maskSum), target);
    const auto* unpadded = std::get_if<RewrittenModel>(&result);
    ASSERT_TRUE(unpadded) << std::get<RefusedModel>(result).message;
    EXPECT_EQ(unpadded->manifest.unpadded, std::vector<std::string>{"attention_mask"});
    const Manifest again = valueOrThrow(parseManifest(unpadded->manifest.json()));
    EXPECT_EQ(again.json(), unpadded->manifest.json());
    ASSERT_TRUE(unpadded->verification);
    const VerificationReport& report = runsOf(*unpadded);
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_EQ(report.cacheBytesCopied, 0);
    EXPECT_GT(report.comparison.steps.size(), 20U);
    // The original takes padding; that this was not compared is said.
    EXPECT_TRUE(llvm::any_of(report.notCovered, [](const std::string& gap) {
      return llvm::StringRef(gap).contains("padding");
    })) << verificationSummary(report);
  }
}

/// Exporters declare the pasts of windowed layers with a symbol of their own.
TEST_F(UnpaddedCaches, HaveOneLengthWhateverItsSymbols) {
  std::string text = countingText("", maskSum);
  const std::string past = "float[B, 2, P, 8] past_k, float[B, 2, P, 8] past_v";
  const std::string more = past + ", float[B, 2, W, 8] past_k2, float[B, 2, W, 8] past_v2";
  text.replace(text.find(past), past.size(), more);
  const std::string presents = "float[B, 2, T, 8] values)";
  text.replace(text.find(presents), presents.size(),
               "float[B, 2, T, 8] values, float[B, 2, V, 8] keys2, float[B, 2, V, 8] values2)");
  const std::string logits = "  logits = MatMul (o, wo)";
  text.replace(text.find(logits), logits.size(), R"(
  turned = Sin (o)
  q2 = MatMul (turned, wq)
  k2 = MatMul (turned, wk)
  v2 = MatMul (turned, wv)
  o2, keys2, values2 = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, do_rotary = 1, local_window_size = 5> (q2, k2, v2, past_k2, past_v2, lengths, total, cosine, sine)
  logits = MatMul (o2, wo))");
  for (const char* target : {"kvopt", "blocks:8", "pyramid:16"}) {
    SCOPED_TRACE(target);
    const RewriteResult result = written(text, target);
    const auto* unpadded = std::get_if<RewrittenModel>(&result);
    ASSERT_TRUE(unpadded) << std::get<RefusedModel>(result).message;
    EXPECT_EQ(unpadded->manifest.caches.size(), 4U);
    ASSERT_TRUE(unpadded->verification);
    EXPECT_TRUE(unpadded->verification->equal()) << unpadded->verification->summary(false);
  }
}

/// Masks that hide later keys and padding become the attribute `causal`.
TEST_F(UnpaddedCaches, HaveAttentionWithoutMasks) {
  for (const char* model : {"kjv", "gpt2-dynamo18-eager", "llama_gqa-ts14-eager"})
    for (const char* target : {"kvopt", "paged:16"}) {
      SCOPED_TRACE(formatted("{} --to {}", model, target));
      RewriteRequest request;
      request.form = valueOrThrow(presetForm(target));
      request.padding = PaddedRows::None;
      request.capacity = 64;
      request.verification = VerificationExtent::Full;
      const RewriteResult result = valueOrThrow(rewrite(
          valueOrThrow(openModel(modelFolder(model) + "/model.onnx", toolkit)), request, toolkit));
      const auto* unpadded = std::get_if<RewrittenModel>(&result);
      ASSERT_TRUE(unpadded) << std::get<RefusedModel>(result).message;
      EXPECT_EQ(unpadded->manifest.unpadded, std::vector<std::string>{"attention_mask"});
      EXPECT_FALSE(unpadded->manifest.hiddenRowsUndefined);
      ASSERT_TRUE(unpadded->verification);
      EXPECT_TRUE(unpadded->verification->equal()) << unpadded->verification->summary(false);
      for (const Node& node : unpadded->model->graph().nodes())
        if (node.is("ai.kvopt::InPlaceKvSdpa")) {
          EXPECT_EQ(node.intAttr("causal", 0), 1);
          EXPECT_EQ(node.intAttr("mask_boolean", 0), 0);
        }
    }
}

TEST_F(UnpaddedCaches, AreRefusedUnlessPaddingIsRuledOut) {
  const std::string message = refusal(countingText("", maskSum), "blocks:8", "any");
  EXPECT_NE(message.find("target-lacks-feature"), std::string::npos) << message;
  EXPECT_NE(message.find("--padding none"), std::string::npos) << message;
}

TEST_F(UnpaddedCaches, AreRefusedWhereTheLengthIsAnotherOne) {
  const std::pair<const char*, std::string> counts[] = {
      {"one more than the mask's sum",
       "  ones = ReduceSum <keepdims = 0> (attention_mask, one)\n  count = Add (ones, one)\n"},
      {"the sum over batch rows", "  sums = ReduceSum <keepdims = 0> (attention_mask, none)\n"
                                  "  count = Slice (sums, none, one)\n"},
      {"the sum of the tokens", "  count = ReduceSum <keepdims = 0> (input_ids, one)\n"},
      {"the largest token", "  count = ReduceMax <keepdims = 0> (input_ids, one)\n"},
      {"the square of the mask's sum",
       "  ones = ReduceSum <keepdims = 0> (attention_mask, one)\n  count = Mul (ones, ones)\n"},
  };
  for (const auto& [name, count] : counts) {
    SCOPED_TRACE(name);
    const std::string message = refusal(countingText("", count), "blocks:8");
    EXPECT_NE(message.find("target-lacks-feature"), std::string::npos) << message;
  }
}

TEST_F(UnpaddedCaches, RefusePaddedSteps) {
  const RewriteResult result = written(countingText("", maskSum), "blocks:8");
  const auto& unpadded = std::get<RewrittenModel>(result);
  SessionOptions options;
  options.batch = 2;
  auto session = valueOrThrow(
      Session::create(*unpadded.model, toolkit.runner->kernels(), unpadded.manifest, options));
  DecoderStep step;
  step.tokens = {{1, 2, 3}, {4, 5, 6}};
  EXPECT_FALSE(llvm::errorToBool(stepDecoder(*session, step).takeError()));
  step.pastLength = 3;
  step.visible = {{1, 1, 1, 1, 1, 1}, {0, 1, 1, 1, 1, 1}};
  const Diagnostic refused = takeDiagnostic(stepDecoder(*session, step).takeError());
  EXPECT_NE(refused.message.find("'attention_mask' is not a one for each of 6 tokens"),
            std::string::npos)
      << refused.message;
  EXPECT_EQ(session->length(), 3);
  step.visible[1][0] = 1;
  EXPECT_FALSE(llvm::errorToBool(stepDecoder(*session, step).takeError()));
}

TEST_F(UnpaddedCaches, AreSaidSoAfterAnotherRewrite) {
  const RewriteResult first = written(countingText("", maskSum), "kvopt");
  const auto& unpadded = std::get<RewrittenModel>(first);
  const std::string path = folder.path("in-place.onnx");
  successOrThrow(exportModel(*unpadded.model, path));
  RewriteRequest request;
  request.verification = VerificationExtent::Quick;
  request.form = valueOrThrow(presetForm("onnx24"));
  request.capacity = 64;
  const RewriteResult again =
      valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  const auto* second = std::get_if<RewrittenModel>(&again);
  ASSERT_TRUE(second) << std::get<RefusedModel>(again).message;
  EXPECT_EQ(second->manifest.unpadded, std::vector<std::string>{"attention_mask"});
}

TEST_F(UnpaddedCaches, CannotBeForgedFromAnythingButMasks) {
  const RewriteResult result = written(countingText("", maskSum), "blocks:8");
  const auto& unpadded = std::get<RewrittenModel>(result);
  for (const char* name : {"logits", "nothing", "table"}) {
    Manifest forged = unpadded.manifest;
    forged.unpadded = {name};
    unpadded.model->setMetadata(manifestKey, forged.json());
    auto read = manifestOf(*unpadded.model);
    ASSERT_FALSE(read) << name;
    llvm::consumeError(read.takeError());
  }
}

} // namespace
} // namespace kvopt
