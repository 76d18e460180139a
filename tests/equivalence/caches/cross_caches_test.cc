// Decoders that project an encoder's results at every step get caches of the projections.
#include "driver/forms/form_table.h"
#include "driver/op_counts.h"
#include "driver/rewrite/rewrite.h"
#include "driver/verify/plan.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

#include <tuple>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// How the other sequence becomes keys and values `ck`, `cv` [B,4,T,4] of a decoder, and how its
/// rows are hidden from the queries.
struct CrossSpelling {
  const char* name;
  std::string rows;      ///< nodes
  const char* mask = ""; ///< the attention's last operand
};

/// Keys and values by heads of rows `cks` and `cvs` [B,T,16].
const std::string headsOfRows = R"(
  ckr = Reshape (cks, kv_shape)
  cvr = Reshape (cvs, kv_shape)
  ck = Transpose <perm = [0, 2, 1, 3]> (ckr)
  cv = Transpose <perm = [0, 2, 1, 3]> (cvr))";

const std::string plainRows = R"(
  cks = MatMul (encoder_hidden_states, wck)
  cvs = MatMul (encoder_hidden_states, wcv))" +
                              headsOfRows;

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
  cvs = MatMul (encoded, wk))" +
                              headsOfRows},
    {"keys_are_values", R"(
  cks = MatMul (encoder_hidden_states, wck)
  cvs = Identity (cks))" + headsOfRows},
    // How long the other sequence is belongs to it.
    {"scaled_by_its_length", R"(
  encoder_shape = Shape (encoder_hidden_states)
  length = Gather (encoder_shape, one)
  length_as_float = Cast <to = 1> (length)
  scaled = Div (encoder_hidden_states, length_as_float)
  cks = MatMul (scaled, wck)
  cvs = MatMul (scaled, wcv))" + headsOfRows},
};

/// A constant matrix.
std::string weightText(const char* name, int rows, int columns) {
  return formatted(R"(
  {0}_count = Constant <value_float = {1}.0> ()
  {0}_shape = Constant <value_ints = [{2}, {3}]> ()
  {0}_range = Range (zero_float, {0}_count, one_float)
  {0}_bent = Sin ({0}_range)
  {0} = Reshape ({0}_bent, {0}_shape))",
                   name, rows * columns, rows, columns);
}

std::string weightsText() {
  std::string text = R"(
  zero_float = Constant <value_float = 0.0> ()
  one_float = Constant <value_float = 1.0> ())";
  for (const auto& [name, rows, columns] : {std::tuple("table", 50, 16),
                                            {"places", 96, 16},
                                            {"wq", 16, 16},
                                            {"wk", 16, 16},
                                            {"wv", 16, 16},
                                            {"wck", 12, 16},
                                            {"wcv", 12, 16},
                                            {"we", 12, 16},
                                            {"wo", 16, 10}})
    text += weightText(name, rows, columns);
  return text;
}

std::string crossText(const CrossSpelling& spelling) {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, T, 12] encoder_hidden_states, int64[B, T] encoder_attention_mask,
         int64[B] beams, float[1] factor) => (float[B, S, 10] logits)
{{{weights}
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
                   spelling.rows, spelling.mask, named("weights", weightsText()));
}

class CrossCaches : public testing::Test {
protected:
  RewriteResult added(const std::string& path, const std::string& target,
                      VerificationExtent extent) {
    RewriteRequest request;
    request.addCaches = true;
    request.form = valueOrThrow(presetForm(target));
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
      SCOPED_TRACE(formatted("{} --to {}", spelling.name, target));
      const std::string path = writtenModel(crossText(spelling), toolkit, folder);
      const RewriteResult result = added(path, target, VerificationExtent::Full);
      const auto* model = std::get_if<RewrittenModel>(&result);
      ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
      ASSERT_TRUE(model->verification) << model->notVerified;
      EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
      EXPECT_GT(runsOf(*model).comparison.steps.back().pastTokens, 0);
      EXPECT_EQ(runsOf(*model).cacheBytesCopied, 0);
      // No later step can depend on what the encoder gave, but through the caches.
      EXPECT_FALSE(takes(*model->model, "encoder_hidden_states"));
      EXPECT_TRUE(takes(*model->model, "past_key_values.0.encoder.key"));
      EXPECT_TRUE(takes(*model->model, "past_key_values.0.decoder.value"));
      ASSERT_TRUE(model->firstStep);
      EXPECT_TRUE(takes(*model->firstStep, "encoder_hidden_states"));
      EXPECT_FALSE(takes(*model->firstStep, "input_ids"));
      size_t cross = 0;
      for (const ManifestCache& cache : model->manifest.caches)
        cross += cache.update() == CacheUpdate::ReadOnly ? 1 : 0;
      EXPECT_EQ(cross, 2U);
      EXPECT_EQ(model->manifest.caches.size(), 4U);
    }
}

TEST_F(CrossCaches, TheFirstStepRunsByDefault) {
  const std::string path = writtenModel(crossText(crossSpellings[0]), toolkit, folder);
  const RewriteResult result = added(path, "kvopt", VerificationExtent::Auto);
  const auto& model = std::get<RewrittenModel>(result);
  ASSERT_TRUE(model.firstStep); // which a check does not look at
  ASSERT_TRUE(model.verification) << model.notVerified;
  EXPECT_TRUE(model.verification->equal());
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

/// Where keys or values depend on more than the other sequence, or what a token sees of it on its
/// place or on other tokens, nothing is cached.
TEST_F(CrossCaches, AreRefusedWhereStepsAreInThem) {
  const auto ofRows = [](const char* rows) { return std::string(rows) + headsOfRows; };
  const std::pair<const char*, CrossSpelling> misses[] = {
      {"another sequence", {"keys of the tokens", ofRows(R"(
  mean = ReduceMean <axes = [1], keepdims = 1> (h)
  shifted = MatMul (mean, wq)
  cks0 = MatMul (encoder_hidden_states, wck)
  cks = Add (cks0, shifted)
  cvs = MatMul (encoder_hidden_states, wcv))")}},
      {"another sequence", {"a number of each step", ofRows(R"(
  scaled = Mul (encoder_hidden_states, factor)
  cks = MatMul (scaled, wck)
  cvs = MatMul (scaled, wcv))")}},
      {"another sequence", {"rows that beams pick", ofRows(R"(
  picked = Gather <axis = 0> (encoder_hidden_states, beams)
  cks = MatMul (picked, wck)
  cvs = MatMul (picked, wcv))")}},
      {"another sequence", {"how many tokens there are", ofRows(R"(
  count_as_float = Cast <to = 1> (count)
  cks0 = MatMul (encoder_hidden_states, wck)
  cks = Mul (cks0, count_as_float)
  cvs = MatMul (encoder_hidden_states, wcv))")}},
      {"another sequence", {"a branch that reads the tokens", ofRows(R"(
  many = Greater (count, one)
  all = ReduceSum <keepdims = 0> (h)
  shift = If (many) <then_branch = then_graph () => (float a) { a = Identity (all) },
                     else_branch = else_graph () => (float b) { b = Neg (all) }>
  cks0 = MatMul (encoder_hidden_states, wck)
  cks = Add (cks0, shift)
  cvs = MatMul (encoder_hidden_states, wcv))")}},
      {"tokens-mixed",
       {"a mask of earlier tokens", R"(
  running = CumSum (input_ids, one)
  seen = Unsqueeze (running, seen_axes)
  token_mask = Greater (seen, zero))" + plainRows,
        ", token_mask"}},
      {"tokens-mixed", {"causal", plainRows}},
  };
  for (const auto& [reason, spelling] : misses) {
    SCOPED_TRACE(spelling.name);
    std::string text = crossText(spelling);
    text.insert(text.find("  extents ="), "  seen_axes = Constant <value_ints = [1, 3]> ()\n");
    if (std::string(spelling.name) == "causal")
      text.insert(text.find("> (cqt"), ", causal = 1");
    const RewriteResult result =
        added(writtenModel(text, toolkit, folder), "primitive", VerificationExtent::Off);
    const auto* refused = std::get_if<RefusedModel>(&result);
    ASSERT_TRUE(refused);
    EXPECT_NE(refused->message.find(reason), std::string::npos) << refused->message;
  }
}

/// What is written is compared from its files, whatever form it is in.
TEST_F(CrossCaches, AreComparedInEveryForm) {
  const std::string path = writtenModel(crossText(crossSpellings[0]), toolkit, folder);
  const auto prepared = [&](const std::string& target) {
    auto result = added(path, target, VerificationExtent::Off);
    auto& model = std::get<RewrittenModel>(result);
    successOrThrow(inferShapes(model.firstStep->graph()));
    return std::tuple(std::move(model.model), model.manifest, std::move(model.firstStep));
  };
  const auto [growing, growingManifest, growingFirst] = prepared("primitive");
  const auto [fused, fusedManifest, fusedFirst] = prepared("kvopt");
  // The first one takes what its own first step gives.
  EXPECT_TRUE(valueOrThrow(verifyModels(*growing, growingManifest, *fused, fusedManifest,
                                        quickVerification(), 1, toolkit, fusedFirst.get()))
                  .equal());
  const DrivenModel original = asExported(path, toolkit);
  successOrThrow(exportModel(*growing, folder.path("growing.onnx")));
  const DrivenModel narrow = rewritten(folder.path("growing.onnx"), toolkit, "", "int8");
  const VerificationReport report =
      valueOrThrow(verifyModels(*original.model, original.manifest, *narrow.model, narrow.manifest,
                                quickVerification(), 1, toolkit, growingFirst.get()));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  // The original has no steps like those of the quantized model; without quantization it has.
  ASSERT_TRUE(report.quantization);
  EXPECT_GT(2 * report.quantization->deviation.tokensAlike, report.quantization->deviation.tokens);
}

} // namespace
} // namespace kvopt
