// A fused attention operator that gets the pasts, and Concats of the model's own that make the
// presents: they are the operator's presents.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

/// `operands` are those of the operator before the pasts; `joins` makes the presents.
std::string besideText(const char* operands, const char* attributes, const char* joins,
                       bool joinsFirst) {
  const std::string attention = formatted(
      "  o = Attention <is_causal = 1{}> ({}, , past_key, past_value)\n", attributes, operands);
  return formatted(R"(<ir_version: 10, opset_import: ["" : 23]>
decoder (int64[B, S] input_ids, float[B, 2, P, 4] past_key, float[B, 2, P, 4] past_value, float[50, 8] table) =>
        (float[] logits, float[B, 2, T, 4] present_key, float[B, 2, T, 4] present_value)
<int64[4] heads = {{0, 0, 2, 4}}, int64[4] open = {{0, 0, -1, 4}}>
{{
  h = Gather (table, input_ids)
  v = Neg (h)
  split = Reshape (h, heads)
  qt = Transpose <perm = [0, 2, 1, 3]> (split)
  kr = Reshape (h, open)
  kt = Transpose <perm = [0, 2, 1, 3]> (kr)
  vr = Reshape (v, heads)
  vt = Transpose <perm = [0, 2, 1, 3]> (vr)
{}{}{}
  logits = Tanh (o)
}})",
                   joinsFirst ? joins : "", attention, joinsFirst ? "" : joins);
}

TEST(JoinedBesideTest, TheModelsConcatsAreThePresents) {
  const char* joins = "  present_key = Concat <axis = -2> (past_key, kt)\n"
                      "  present_value = Concat <axis = 2> (past_value, vt)\n";
  const std::pair<const char*, const char*> spellings[] = {
      {"qt, kt, vt", ""}, {"h, h, v", ", q_num_heads = 2, kv_num_heads = 2"}};
  Toolkit toolkit;
  TemporaryFolder folder;
  for (const auto& [operands, attributes] : spellings)
    for (bool joinsFirst : {true, false}) {
      const std::string path =
          writtenModel(besideText(operands, attributes, joins, joinsFirst), toolkit, folder);
      for (const char* target : {"kvopt", "onnx24"}) {
        SCOPED_TRACE(formatted("{}, {} --to {}", operands, joinsFirst, target));
        RewriteRequest request;
        request.verification = VerificationExtent::Quick;
        request.form = valueOrThrow(presetForm(target));
        const RewriteResult result =
            valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
        const auto* model = std::get_if<RewrittenModel>(&result);
        ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
        ASSERT_TRUE(model->verification);
        EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
        EXPECT_EQ(model->after.ops.count("Concat"), 0U);
        for (const ManifestCache& cache : model->manifest.caches)
          EXPECT_TRUE(cache.isOneBuffer());
      }
    }
}

/// An operator of com.microsoft; `lengths` makes seqlens and total of the mask [B,P + S].
std::string contribText(const char* lengths, const char* attention) {
  return formatted(R"(<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
decoder (int64[B, S] input_ids, int64[B, N] attention_mask, float[B, 2, P, 4] past_key, float[B, 2, P, 4] past_value,
         float[50, 8] table) =>
        (float[] logits, float[B, 2, T, 4] present_key, float[B, 2, T, 4] present_value)
<int64[4] heads = {{0, 0, 2, 4}}, int64[1] first = {{0}}, int64[1] second = {{1}}, int64 one = {{1}}>
{{
  h = Gather (table, input_ids)
  v = Neg (h)
  kr = Reshape (h, heads)
  kt = Transpose <perm = [0, 2, 1, 3]> (kr)
  vr = Reshape (v, heads)
  vt = Transpose <perm = [0, 2, 1, 3]> (vr)
  extents = Shape (attention_mask)
  keys = Gather <axis = 0> (extents, one)
  total = Cast <to = 6> (keys)
  batch = Gather <axis = 0> (extents, first)
{}
  o = com.microsoft.{}
  present_key = Concat <axis = 2> (past_key, kt)
  present_value = Concat <axis = -2> (past_value, vt)
  logits = Tanh (o)
}})",
                   lengths, attention);
}

const char* groupedAttention = "GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (h, h, v, "
                               "past_key, past_value, seqlens, total)";

TEST(JoinedBesideTest, OperatorsThatAppendAfterAllRowsHaveThePresentsToo) {
  const std::string texts[] = {
      contribText(R"(
  last = Sub (keys, one)
  every = Expand (last, batch)
  seqlens = Cast <to = 6> (every))",
                  groupedAttention),
      contribText(R"(
  last = Sub (total, one_int)
  seqlens = Expand (last, batch))",
                  groupedAttention),
      contribText("", "MultiHeadAttention <num_heads = 2, unidirectional = 1> (h, h, v, , , , "
                      "past_key, past_value)"),
  };
  Toolkit toolkit;
  TemporaryFolder folder;
  for (std::string text : texts) {
    text.replace(text.find("int64 one"), 0, "int32 one_int = {1}, ");
    const std::string path = writtenModel(text, toolkit, folder);
    for (const char* target : {"kvopt", "onnx24", "primitive"}) {
      SCOPED_TRACE(text + " --to " + target);
      RewriteRequest request;
      request.verification = VerificationExtent::Quick;
      request.form = valueOrThrow(presetForm(target));
      const RewriteResult result =
          valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
      const auto* model = std::get_if<RewrittenModel>(&result);
      ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
      ASSERT_TRUE(model->verification);
      EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
      EXPECT_EQ(model->manifest.caches.size(), 2U);
    }
  }
}

TEST(JoinedBesideTest, RowsAtCountedPlacesAreNotThePresent) {
  Toolkit toolkit;
  TemporaryFolder folder;
  const std::string path = writtenModel(contribText(R"(
  counts = ReduceSum <keepdims = 0> (attention_mask, second)
  last = Sub (counts, one)
  seqlens = Cast <to = 6> (last))",
                                                    groupedAttention),
                                        toolkit, folder);
  RewriteRequest request;
  request.verification = VerificationExtent::Quick;
  request.form = valueOrThrow(presetForm("kvopt"));
  const RewriteResult result =
      valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  const auto* refused = std::get_if<RefusedModel>(&result);
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->message.find("joins rows after all of the past"), std::string::npos)
      << refused->message;
}

TEST(JoinedBesideTest, OtherRowsAreNotThePresent) {
  const char* joins = "  other = Tanh (kt)\n  present_key = Concat <axis = 2> (past_key, other)\n"
                      "  present_value = Concat <axis = 2> (past_value, vt)\n";
  Toolkit toolkit;
  TemporaryFolder folder;
  const std::string path = writtenModel(besideText("qt, kt, vt", "", joins, true), toolkit, folder);
  RewriteRequest request;
  request.verification = VerificationExtent::Quick;
  request.form = valueOrThrow(presetForm("kvopt"));
  const RewriteResult result =
      valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  const auto* refused = std::get_if<RefusedModel>(&result);
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->message.find("joins it with other rows"), std::string::npos)
      << refused->message;
}

} // namespace
} // namespace kvopt
