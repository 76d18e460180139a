// Layers that share a cache: one appends to it, and all of them read it in place.
#include "support/format.h"
#include "tests/equivalence/caches/cache_plan.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// `attend` computes `o` and `o2` [B,4,S,4] from `q`, `q2`, and the cache's `keys` and `values`, of
/// which `mask` hides padding.
std::string modelText(llvm::StringRef attend) {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, int64[B, "P + S"] attention_mask, float[B, 2, P, 4] past_k, float[B, 2, P, 4] past_v,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[B, 2, "P + S", 4] keys, float[B, 2, "P + S", 4] values)
{{
{projections}
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
  head_axes = Constant <value_ints = [1, 2]> ()
  padding = Unsqueeze (attention_mask, head_axes)
  mask = Cast <to = 9> (padding)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, keys, values, mask)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  om = Reshape (ot, o_shape)
  hidden2 = Sin (om)
  q2m = MatMul (hidden2, wq)
  q2r = Reshape (q2m, q_shape)
  q2 = Transpose <perm = [0, 2, 1, 3]> (q2r)
{attend}
  o2t = Transpose <perm = [0, 2, 1, 3]> (o2)
  o2m = Reshape (o2t, o_shape)
  sum = Add (om, o2m)
  logits = MatMul (sum, wo)
}})",
                   named("attend", attend.str()), named("projections", decoderProjections));
}

class SharedCaches : public testing::Test {
protected:
  static EquivalencePlan plan() {
    EquivalencePlan plan = cachePlan();
    plan.padding = Padding::Left;
    return plan;
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

/// Names of layers that read the first one's caches, and their nodes.
constexpr std::pair<const char*, const char*> attendingLayers[] = {
    {"all", "  o2 = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q2, keys, values, mask)"},
    {"window",
     "  o2 = ai.kvopt.Sdpa <scale = 0.25, causal = 1, window = 4> (q2, keys, values, mask)"},
    {"without_a_mask", "  o2 = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q2, keys, values)"},
    {"three", R"(  o1 = ai.kvopt.Sdpa <scale = 0.75, causal = 1> (q2, keys, values, mask)
  o2 = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (o1, keys, values, mask))"},
};

TEST_F(SharedCaches, AreReadInPlace) {
  for (const auto& [name, attend] : attendingLayers) {
    SCOPED_TRACE(name);
    const std::string path = writtenModel(modelText(attend), toolkit, folder);
    DrivenModel growing = raised(path, toolkit);
    for (const char* target : {"kvopt", "onnx24"}) {
      SCOPED_TRACE(target);
      DrivenModel inPlace = rewritten(path, toolkit, "", target);
      ASSERT_EQ(inPlace.manifest.caches.size(), 2U);
      EXPECT_FALSE(inPlace.manifest.caches[0].readers.empty());
      VerificationReport report = valueOrThrow(verifyModels(
          *growing.model, growing.manifest, *inPlace.model, inPlace.manifest, plan(), 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      EXPECT_EQ(report.cacheBytesCopied, 0);
      // Any other engine runs the function bodies.
      expectEqualBodies(inPlace, plan(), toolkit);
    }
  }
}

/// The owner's node writes codes, and every reader takes them with their scales.
TEST_F(SharedCaches, AreReadAsCodes) {
  for (const auto& [name, attend] : attendingLayers)
    for (const char* target : {"int8", "int4"}) {
      SCOPED_TRACE(formatted("{} {}", name, target));
      const std::string path = writtenModel(modelText(attend), toolkit, folder);
      DrivenModel growing = raised(path, toolkit);
      DrivenModel codes = rewritten(path, toolkit, "", target);
      ASSERT_EQ(codes.manifest.caches.size(), 4U);
      EXPECT_FALSE(codes.manifest.caches[0].readers.empty());
      VerificationReport report = valueOrThrow(verifyModels(
          *growing.model, growing.manifest, *codes.model, codes.manifest, plan(), 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      ASSERT_TRUE(report.quantization);
      // Readers are compared with their definition, too.
      EXPECT_EQ(report.quantization->sites, llvm::StringRef(name) == "three" ? 3U : 2U);
      EXPECT_EQ(report.cacheBytesCopied, 0);
      expectEqualBodies(codes, plan(), toolkit);
    }
}

/// A reader that takes other rows than its owner's is found out.
TEST_F(SharedCaches, ForgedReadersOfCodesAreFound) {
  const std::string path = writtenModel(
      modelText("  o2 = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q2, keys, values, mask)"),
      toolkit, folder);
  DrivenModel growing = raised(path, toolkit);
  const auto isDifferent = [&](llvm::function_ref<void(Node&)> forge) {
    DrivenModel codes = rewritten(path, toolkit, "", "int8");
    for (Node& node : codes.model->graph().nodes())
      if (node.is("ai.kvopt::QuantizedSdpa"))
        forge(node);
    return valueOrThrow(verifyModels(*growing.model, growing.manifest, *codes.model, codes.manifest,
                                     plan(), 1, toolkit))
        .isDifferent();
  };
  EXPECT_FALSE(isDifferent([](Node&) {}));
  EXPECT_TRUE(isDifferent([](Node& node) { // values of the keys' rows
    node.setOperand(3, node.operand(1));
    node.setOperand(4, node.operand(2));
  }));
  EXPECT_TRUE(isDifferent([](Node& node) { node.setOperand(4, node.operand(2)); }));
  EXPECT_TRUE(
      isDifferent([](Node& node) { node.setAttribute("scale", Attribute::ofFloat(0.3f)); }));
}

/// GroupQueryAttention over the present of another one, with keys and values of no rows.
std::string groupedText(llvm::StringRef reader) {
  return formatted(R"(<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
decoder (int64[B, S] input_ids, int64[B, T] attention_mask, float[B, 2, P, 8] past_k, float[B, 2, P, 8] past_v,
         float[1, 1, 32] table, float[1, 32, 32] wq, float[1, 32, 16] wk, float[1, 32, 16] wv, float[1, 32, 10] wo,
         float[64, 4] cosine, float[64, 4] sine)
  => (float[B, S, 10] logits, float[B, 2, T, 8] keys, float[B, 2, T, 8] values)
{{
{hidden}
  q = MatMul (hidden, wq)
  k = MatMul (hidden, wk)
  v = MatMul (hidden, wv)
  one = Constant <value_ints = [1]> ()
  none = Constant <value_ints = [0]> ()
  width = Constant <value_ints = [16]> ()
  one_index = Constant <value_int = 1> ()
  count = ReduceSum <keepdims = 0> (attention_mask, one)
  last_position = Sub (count, one)
  lengths = Cast <to = 6> (last_position)
  mask_shape = Shape (attention_mask)
  columns = Gather (mask_shape, one_index)
  total = Cast <to = 6> (columns)
  o, keys, values = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, do_rotary = 1> (q, k, v, past_k, past_v, lengths, total, cosine, sine)
  hidden2 = Sin (o)
  q2 = MatMul (hidden2, wq)
  no_tokens = Slice (q2, none, none, one)
  no_rows = Slice (no_tokens, none, width, last)
{}
  sum = Add (o, o2)
  logits = MatMul (sum, wo)
}})",
                   reader.str(), named("hidden", decoderHidden));
}

TEST_F(SharedCaches, OfGroupQueryAttentionAreReadInPlace) {
  const char* readers[] = {"  o2 = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads "
                           "= 2, do_rotary = 1> (q2, "
                           "no_rows, no_rows, keys, values, lengths, total, cosine, sine)",
                           "  o2 = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads "
                           "= 2, local_window_size = "
                           "3> (q2, no_rows, no_rows, keys, values, lengths, total)"};
  for (const char* reader : readers) {
    SCOPED_TRACE(reader);
    const std::string path = writtenModel(groupedText(reader), toolkit, folder);
    const DrivenModel exported = asExported(path, toolkit);
    for (const char* target : {"kvopt", "primitive"}) {
      SCOPED_TRACE(target);
      const DrivenModel written = rewritten(path, toolkit, "", target);
      ASSERT_EQ(written.manifest.caches.size(), 2U);
      EXPECT_EQ(written.manifest.caches[0].readers, std::vector<int64_t>{1});
      EquivalencePlan steps = plan();
      steps.tolerance = {1e-5, 1e-5};
      steps.padding = Padding::None;
      const VerificationReport report = valueOrThrow(verifyModels(
          *exported.model, exported.manifest, *written.model, written.manifest, steps, 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      EXPECT_EQ(report.cacheBytesCopied, 0);
    }
  }
}

TEST_F(SharedCaches, OfGroupQueryAttentionHaveOneLength) {
  // Attention that reads all rows, those behind a shorter batch row's too.
  std::string text = groupedText(R"(
  q2_shape = Constant <value_ints = [0, 0, 4, 8]> ()
  o2_shape = Constant <value_ints = [0, 0, 32]> ()
  q2r = Reshape (q2, q2_shape)
  q2h = Transpose <perm = [0, 2, 1, 3]> (q2r)
  o2h = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q2h, keys, values)
  o2t = Transpose <perm = [0, 2, 1, 3]> (o2h)
  o2 = Reshape (o2t, o2_shape))");
  text.replace(text.find("\"com.microsoft\" : 1"), 19, "\"com.microsoft\" : 1, \"ai.kvopt\" : 1");
  RecoveredModel recovered =
      valueOrThrow(recoverModel(writtenModel(text, toolkit, folder), toolkit));
  const auto failures =
      targets::refusals(*toolkit.targets.find("kvopt"), recovered.context->sites, *recovered.model);
  ASSERT_EQ(failures.size(), 2U);
  ASSERT_TRUE(failures[1]);
  EXPECT_EQ(pattern::reasonName(failures[1]->code).str(), "shape-mismatch") << failures[1]->str();
}

TEST_F(SharedCaches, AreRefusedWhereOneReaderIsNoAttentionOverAllOfThem) {
  const std::pair<const char*, const char*> readers[] = {
      {"cache-escapes", R"(  longest = ReduceMax <keepdims = 1> (keys)
  o2 = Mul (q2, longest))"},
      {"shared-reader", "  o2 = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q2, values, keys, mask)"},
      {"shared-reader", R"(  from = Constant <value_ints = [1]> ()
  to = Constant <value_ints = [4]> ()
  axis = Constant <value_ints = [2]> ()
  near_keys = Slice (keys, from, to, axis)
  near_values = Slice (values, from, to, axis)
  o2 = ai.kvopt.Sdpa <scale = 0.25> (q2, near_keys, near_values))"},
  };
  for (const auto& [reason, attend] : readers) {
    SCOPED_TRACE(attend);
    RecoveredModel recovered =
        valueOrThrow(recoverModel(writtenModel(modelText(attend), toolkit, folder), toolkit));
    const auto failures = targets::refusals(*toolkit.targets.find("kvopt"),
                                            recovered.context->sites, *recovered.model);
    ASSERT_TRUE(failures.front());
    EXPECT_EQ(pattern::reasonName(failures.front()->code), reason) << failures.front()->str();
  }
}

} // namespace
} // namespace kvopt
