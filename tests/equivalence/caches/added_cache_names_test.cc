// What added caches are called where the model has outputs and inputs of such names.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

/// What a model hands out or takes besides its logits.
struct Interface {
  std::string inputs;  ///< declarations
  std::string outputs; ///< declarations
  std::string nodes;   ///< that make the outputs
};

/// Two layers of attention over `kt_N` and `vt_N` [B,2,S,4].
std::string modelText(const Interface& more, int64_t opset = 17) {
  std::string layers;
  for (int i = 0; i < 2; ++i)
    layers += formatted(R"(
  k_{0} = MatMul (h_{0}, wk)
  v_{0} = MatMul (h_{0}, wv)
  qr_{0} = Reshape (h_{0}, q_shape)
  kr_{0} = Reshape (k_{0}, kv_shape)
  vr_{0} = Reshape (v_{0}, kv_shape)
  qt_{0} = Transpose <perm = [0, 2, 1, 3]> (qr_{0})
  kt_{0} = Transpose <perm = [0, 2, 1, 3]> (kr_{0})
  vt_{0} = Transpose <perm = [0, 2, 1, 3]> (vr_{0})
  o_{0} = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (qt_{0}, kt_{0}, vt_{0})
  ot_{0} = Transpose <perm = [0, 2, 1, 3]> (o_{0})
  om_{0} = Reshape (ot_{0}, o_shape)
  s_{0} = Add (h_{0}, om_{0})
  h_{1} = Tanh (s_{0}))",
                        i, i + 1);
  return formatted(R"(<ir_version: 10, opset_import: ["" : {}, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[50, 16] table, float[16, 8] wk, float[16, 8] wv{}) =>
        (float[B, S, 16] logits{})
<int64[4] q_shape = {{0, 0, 4, 4}}, int64[4] kv_shape = {{0, 0, 2, 4}}, int64[3] o_shape = {{0, 0, 16}}>
{{
  h_0 = Gather (table, input_ids)
{}
{}
  logits = Identity (h_2)
}})",
                   opset, more.inputs, more.outputs, layers, more.nodes);
}

/// `float[B, 2, S, 4] NAME`, for each.
std::string rowsNamed(std::initializer_list<const char*> names) {
  std::string text;
  for (const char* name : names)
    text += formatted(", float[B, 2, S, 4] \"{}\"", name);
  return text;
}

class AddedCacheNamesTest : public testing::Test {
protected:
  RewriteResult added(const std::string& text) {
    RewriteRequest request;
    request.addCaches = true;
    request.form = valueOrThrow(presetForm("primitive"));
    request.verification = VerificationExtent::Quick;
    const std::string path = writtenModel(text, toolkit, folder);
    return valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
  }

  /// Past and present of each cache, in the manifest's order.
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  void expectPairs(const std::string& text, const Pairs& expected, size_t takenOver) {
    const RewriteResult result = added(text);
    const auto* model = std::get_if<RewrittenModel>(&result);
    ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
    Pairs pairs;
    for (const ManifestCache& cache : model->manifest.caches)
      pairs.emplace_back(cache.past, cache.present);
    EXPECT_EQ(pairs, expected);
    EXPECT_EQ(model->passes->outputsMadeCaches.size(), takenOver);
    ASSERT_TRUE(model->verification);
    EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
    // What an output handed out over the whole sequence is what the cache holds now.
    EXPECT_EQ(runsOf(*model).comparison.steps.back().caches.size(), takenOver);
    // No name is left to another value.
    llvm::StringSet<> outputs;
    for (const Value* output : model->model->graph().outputs())
      EXPECT_TRUE(outputs.insert(output->name()).second);
    EXPECT_FALSE(outputs.contains("present.0.key_1"));
  }

  void expectClash(const std::string& text, const std::string& found) {
    const RewriteResult result = added(text);
    const auto* refused = std::get_if<RefusedModel>(&result);
    ASSERT_TRUE(refused);
    EXPECT_NE(refused->message.find("name-taken"), std::string::npos) << refused->message;
    EXPECT_NE(refused->message.find(found), std::string::npos) << refused->message;
  }

  const Pairs usual = {{"past_key_values.0.key", "present.0.key"},
                       {"past_key_values.0.value", "present.0.value"},
                       {"past_key_values.1.key", "present.1.key"},
                       {"past_key_values.1.value", "present.1.value"}};

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(AddedCacheNamesTest, OutputsThatHandOutTheRowsBecomeTheCaches) {
  expectPairs(modelText({}), usual, 0);
  Interface all;
  all.outputs = rowsNamed({"present.0.key", "present.0.value", "present.1.key", "present.1.value"});
  all.nodes = R"(  "present.0.key" = Identity (kt_0)
  "present.0.value" = Identity (vt_0)
  "present.1.key" = Identity (kt_1)
  "present.1.value" = Identity (vt_1))";
  expectPairs(modelText(all), usual, 4);
  // Computed once more, and only of one layer.
  Interface again;
  again.outputs = rowsNamed({"present.1.key"});
  again.nodes = R"(  rows = Transpose <perm = [0, 2, 3, 1]> (kr_1)
  "present.1.key" = Transpose <perm = [0, 1, 3, 2]> (rows))";
  expectPairs(modelText(again), usual, 1);
}

TEST_F(AddedCacheNamesTest, PastsAreNamedAfterTheirPresents) {
  Interface other;
  other.outputs = rowsNamed({"present_value_0", "present_key_0"});
  other.nodes = "  present_key_0 = Identity (kt_0)\n  present_value_0 = Identity (vt_0)";
  expectPairs(modelText(other),
              {{"past_key_0", "present_key_0"},
               {"past_value_0", "present_value_0"},
               {"past_key_values.1.key", "present.1.key"},
               {"past_key_values.1.value", "present.1.value"}},
              2);
  // Numbers that count from elsewhere still pair.
  Interface swapped;
  swapped.outputs = rowsNamed({"present.1.key", "present.0.key"});
  swapped.nodes = "  \"present.1.key\" = Identity (kt_0)\n  \"present.0.key\" = Identity (kt_1)";
  expectPairs(modelText(swapped),
              {{"past_key_values.1.key", "present.1.key"},
               {"past_key_values.0.value", "present.0.value"},
               {"past_key_values.0.key", "present.0.key"},
               {"past_key_values.1.value", "present.1.value"}},
              2);
}

TEST_F(AddedCacheNamesTest, AnOutputOfOtherContentsIsAClash) {
  Interface layout;
  layout.outputs = ", float[B, S, 2, 4] \"present.0.key\"";
  layout.nodes = "  \"present.0.key\" = Identity (kr_0)";
  expectClash(modelText(layout), "'present.0.key' is an output float[B, S, 2, 4]");
  Interface changed;
  changed.outputs = rowsNamed({"present.1.value"});
  changed.nodes = "  \"present.1.value\" = Neg (vt_1)";
  expectClash(modelText(changed), "'present.1.value' is an output");
  // Another layer's rows.
  Interface shifted;
  shifted.outputs = rowsNamed({"present.1.key"});
  shifted.nodes = "  \"present.1.key\" = Identity (kt_0)";
  expectClash(modelText(shifted), "'present.1.key' is another cache");
}

TEST_F(AddedCacheNamesTest, AnInputOfTheNameIsAClash) {
  Interface taken;
  taken.inputs = ", float[B, S, 16] \"past_key_values.1.value\"";
  taken.outputs = ", float[B, S, 16] sum";
  taken.nodes = "  sum = Add (h_1, \"past_key_values.1.value\")";
  expectClash(modelText(taken), "'past_key_values.1.value' is an input float[B, S, 16]");
}

TEST_F(AddedCacheNamesTest, ValuesInsideGiveUpTheName) {
  Interface inner;
  inner.outputs = ", float[B, 2, S, 4] squares";
  inner.nodes = "  \"present.0.key\" = Neg (kt_1)\n  squares = Mul (\"present.0.key\", kt_1)";
  expectPairs(modelText(inner), usual, 0);
}

TEST_F(AddedCacheNamesTest, PresentsOfAttentionOperatorsBecomeTheCaches) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 23]>
decoder (int64[B, S] input_ids, float[50, 16] table, float[16, 8] wk, float[16, 8] wv) =>
        (float[B, S, 16] logits, float[B, 2, S, 4] "present.0.key", float[B, 2, S, 4] "present.0.value")
{
  h = Gather (table, input_ids)
  k = MatMul (h, wk)
  v = MatMul (h, wv)
  logits, "present.0.key", "present.0.value" =
      Attention <is_causal = 1, q_num_heads = 4, kv_num_heads = 2> (h, k, v)
})";
  expectPairs(
      text,
      {{"past_key_values.0.key", "present.0.key"}, {"past_key_values.0.value", "present.0.value"}},
      2);
}

} // namespace
} // namespace kvopt
