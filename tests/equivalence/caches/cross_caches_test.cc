// Decoders that project an encoder's results at every step get caches of the projections.
#include "driver/op_counts.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// How the other sequence becomes keys and values `ck`, `cv` [B,4,T,4] of a decoder, and how its
/// rows are hidden from the queries.
struct CrossSpelling {
  const char* name;
  const char* rows;      ///< nodes
  const char* mask = ""; ///< the attention's last operand
};

const char* plainRows = R"(
  cks = MatMul (encoder_hidden_states, wck)
  cvs = MatMul (encoder_hidden_states, wcv)
  ckr = Reshape (cks, kv_shape)
  cvr = Reshape (cvs, kv_shape)
  ck = Transpose <perm = [0, 2, 1, 3]> (ckr)
  cv = Transpose <perm = [0, 2, 1, 3]> (cvr))";

const CrossSpelling crossSpellings[] = {
    {"plain", plainRows},
    {"padded", plainRows, ", cross_mask"},
    // Exporters take the batch from whatever is at hand.
    {"batch_of_the_decoder", R"(
  cks = MatMul (encoder_hidden_states, wck)
  cvs = MatMul (encoder_hidden_states, wcv)
  hidden_shape = Shape (h)
  batch = Gather (hidden_shape, zero_list)
  split = Concat <axis = 0> (batch, rest, four, four)
  ckr = Reshape (cks, split)
  cvr = Reshape (cvs, split)
  ck = Transpose <perm = [0, 2, 1, 3]> (ckr)
  cv = Transpose <perm = [0, 2, 1, 3]> (cvr))"},
    {"behind_an_encoder", R"(
  eq = MatMul (encoder_hidden_states, we)
  eqr = Reshape (eq, kv_shape)
  et = Transpose <perm = [0, 2, 1, 3]> (eqr)
  eo = ai.kvopt.Sdpa <scale = 0.5> (et, et, et)
  eot = Transpose <perm = [0, 2, 1, 3]> (eo)
  encoded = Reshape (eot, o_shape)
  cks = MatMul (encoded, wq)
  cvs = MatMul (encoded, wk)
  ckr = Reshape (cks, kv_shape)
  cvr = Reshape (cvs, kv_shape)
  ck = Transpose <perm = [0, 2, 1, 3]> (ckr)
  cv = Transpose <perm = [0, 2, 1, 3]> (cvr))"},
    {"keys_are_values", R"(
  cks = MatMul (encoder_hidden_states, wck)
  ckr = Reshape (cks, kv_shape)
  ck = Transpose <perm = [0, 2, 1, 3]> (ckr)
  cv = Identity (ck))"},
};

std::string crossText(const CrossSpelling& spelling) {
  return fmt::format(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, T, 12] encoder_hidden_states, int64[B, T] encoder_attention_mask,
         float[50, 16] table, float[64, 16] places, float[16, 16] wq, float[16, 16] wk, float[16, 16] wv,
         float[12, 16] wck, float[12, 16] wcv, float[12, 16] we, float[16, 10] wo) => (float[B, S, 10] logits)
{{
  kv_shape = Constant <value_ints = [0, 0, 4, 4]> ()
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  zero_list = Constant <value_ints = [0]> ()
  rest = Constant <value_ints = [-1]> ()
  four = Constant <value_ints = [4]> ()
  head_axes = Constant <value_ints = [1, 2]> ()
  extents = Shape (input_ids)
  count = Gather (extents, one)
  range = Range (zero, count, one)
  place = Gather (places, range)
  embedded = Gather (table, input_ids)
  h = Add (embedded, place)
  q = MatMul (h, wq)
  k = MatMul (h, wk)
  v = MatMul (h, wv)
  qr = Reshape (q, kv_shape)
  kr = Reshape (k, kv_shape)
  vr = Reshape (v, kv_shape)
  qt = Transpose <perm = [0, 2, 1, 3]> (qr)
  kt = Transpose <perm = [0, 2, 1, 3]> (kr)
  vt = Transpose <perm = [0, 2, 1, 3]> (vr)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (qt, kt, vt)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  om = Reshape (ot, o_shape)
  s = Add (h, om)
  cq = MatMul (s, wq)
  cqr = Reshape (cq, kv_shape)
  cqt = Transpose <perm = [0, 2, 1, 3]> (cqr)
  padding = Unsqueeze (encoder_attention_mask, head_axes)
  cross_mask = Cast <to = 9> (padding)
{}
  co = ai.kvopt.Sdpa <scale = 0.5> (cqt, ck, cv{})
  cot = Transpose <perm = [0, 2, 1, 3]> (co)
  com = Reshape (cot, o_shape)
  sum = Add (s, com)
  logits = MatMul (sum, wo)
}})",
                     spelling.rows, spelling.mask);
}

class CrossCaches : public testing::Test {
protected:
  RewriteResult added(const std::string& path, const std::string& target,
                      VerificationExtent extent) {
    RewriteRequest request;
    request.addCaches = true;
    request.target = target;
    request.verification = extent;
    return valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  }

  static bool takes(const Model& model, llvm::StringRef input) {
    const Value* value = model.graph().findValue(input);
    return value && value->isGraphInput();
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(CrossCaches, AreComputedOnce) {
  for (const CrossSpelling& spelling : crossSpellings)
    for (const char* target : {"primitive", "kvopt", "onnx24"}) {
      SCOPED_TRACE(fmt::format("{} --to {}", spelling.name, target));
      const std::string path = writtenModel(crossText(spelling), toolkit, folder);
      const RewriteResult result = added(path, target, VerificationExtent::Full);
      const auto* model = std::get_if<RewrittenModel>(&result);
      ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
      ASSERT_TRUE(model->verification) << model->notVerified;
      EXPECT_TRUE(model->verification->equal()) << verificationSummary(*model->verification);
      EXPECT_GT(model->verification->comparison.steps.back().pastTokens, 0);
      EXPECT_EQ(model->verification->cacheBytesCopied, 0);
      // No later step can depend on what the encoder gave, but through the caches.
      EXPECT_FALSE(takes(*model->model, "encoder_hidden_states"));
      EXPECT_TRUE(takes(*model->model, "past_key_values.0.encoder.key"));
      EXPECT_TRUE(takes(*model->model, "past_key_values.0.decoder.value"));
      ASSERT_TRUE(model->firstStep);
      EXPECT_TRUE(takes(*model->firstStep, "encoder_hidden_states"));
      EXPECT_FALSE(takes(*model->firstStep, "input_ids"));
      size_t cross = 0;
      for (const ManifestCache& cache : model->manifest.caches)
        cross += cache.update == CacheUpdate::ReadOnly ? 1 : 0;
      EXPECT_EQ(cross, 2U);
      EXPECT_EQ(model->manifest.caches.size(), 4U);
    }
}

TEST_F(CrossCaches, AreProjectedByTheFirstStepOnly) {
  const std::string path = writtenModel(crossText(crossSpellings[0]), toolkit, folder);
  const RewriteResult result = added(path, "primitive", VerificationExtent::Off);
  const auto& model = std::get<RewrittenModel>(result);
  const auto products = [](Model& counted) {
    OpCounts counts = countOps(counted.graph());
    return counts["MatMul"];
  };
  // Of six projections of rows and two of attention each.
  EXPECT_EQ(products(*model.firstStep), 2);
  EXPECT_EQ(products(*model.model), 9);
}

/// Where the keys depend on the decoder's tokens, or its mask on other tokens, nothing is cached.
TEST_F(CrossCaches, AreRefusedWhereTokensAreInThem) {
  const std::pair<const char*, CrossSpelling> misses[] = {
      {"another sequence", {"keys of the tokens", R"(
  mean = ReduceMean <axes = [1], keepdims = 1> (h)
  shifted = MatMul (mean, wq)
  cks0 = MatMul (encoder_hidden_states, wck)
  cks = Add (cks0, shifted)
  cvs = MatMul (encoder_hidden_states, wcv)
  ckr = Reshape (cks, kv_shape)
  cvr = Reshape (cvs, kv_shape)
  ck = Transpose <perm = [0, 2, 1, 3]> (ckr)
  cv = Transpose <perm = [0, 2, 1, 3]> (cvr))"}},
      {"tokens-mixed",
       {"a mask of earlier tokens", R"(
  running = CumSum (input_ids, one)
  seen = Unsqueeze (running, seen_axes)
  token_mask = Greater (seen, zero)
  cks = MatMul (encoder_hidden_states, wck)
  cvs = MatMul (encoder_hidden_states, wcv)
  ckr = Reshape (cks, kv_shape)
  cvr = Reshape (cvs, kv_shape)
  ck = Transpose <perm = [0, 2, 1, 3]> (ckr)
  cv = Transpose <perm = [0, 2, 1, 3]> (cvr))",
        ", token_mask"}},
  };
  for (const auto& [reason, spelling] : misses) {
    SCOPED_TRACE(spelling.name);
    std::string text = crossText(spelling);
    text.insert(text.find("  extents ="), "  seen_axes = Constant <value_ints = [1, 3]> ()\n");
    const RewriteResult result =
        added(writtenModel(text, toolkit, folder), "primitive", VerificationExtent::Off);
    const auto* refused = std::get_if<RefusedModel>(&result);
    ASSERT_TRUE(refused);
    EXPECT_NE(refused->message.find(reason), std::string::npos) << refused->message;
  }
}

} // namespace
} // namespace kvopt
