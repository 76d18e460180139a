// Models with caches of int8 and of four-bit codes: that they are the exported ones but for the
// rounding of rows, and that what is not is found out.
#include "passes/unrounding/quantized_model.h"
#include "support/format.h"
#include "support/four_bit_row.h"
#include "support/string_ends.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/support/temporary_folder.h"

#include "llvm/ADT/STLExtras.h"

#include <iostream>
#include <utility>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;
using namespace unrounding;

namespace {

DrivenModel quantized(const std::string& path, const Toolkit& toolkit,
                      const std::string& target = "int8") {
  const bool hasBlocks = startsWith(target, "int8-blocks");
  return rewritten(path, toolkit, hasBlocks ? "capacity=150" : "", target);
}

VerificationReport verified(const DrivenModel& original, const DrivenModel& other,
                            const EquivalencePlan& plan, const Toolkit& toolkit) {
  return valueOrThrow(verifyModels(*original.model, original.manifest, *other.model, other.manifest,
                                   plan, 1, toolkit));
}

EquivalencePlan shortPlan() {
  EquivalencePlan plan = quickVerification();
  plan.prompt = 9;
  plan.decodeSteps = 5;
  return plan;
}

using QuantizedCaches = ShippedModelTest;

/// How rows are divided changes no bit, and attention reads the codes of new rows, too.
TEST_P(QuantizedCaches, InBlocksGiveTheBitsOfABuffer) {
  auto outputs = [&](const char* target) {
    DrivenModel driven = quantized(path(), toolkit, target);
    SessionOptions options;
    options.capacity = driven.manifest.ownsCaches() ? 150 : 0;
    auto session = openSession(driven, toolkit.runner->kernels(), options);
    TokenStream tokens(*driven.model, 1);
    std::string bytes;
    for (int64_t count : {20, 1, 3, 1, 40, 1}) {
      const StepResult result = tokens.feed(*session, count);
      const TensorView& view = result.outputs.front().tensor.view;
      bytes.append(reinterpret_cast<const char*>(view.data), static_cast<size_t>(view.byteSize()));
    }
    EXPECT_EQ(session->statistics().inPlaceBytesCopied, 0);
    return bytes;
  };
  const std::string expected = outputs("int8");
  for (const char* target : {"int8-blocks:64", "int8-blocks:7", "int8-blocks:150"})
    EXPECT_TRUE(outputs(target) == expected) << target;
}

/// Scales that are handed out for other blocks than those that attention reads.
TEST_P(QuantizedCaches, InBlocksThatAreMiswiredAreFoundOut) {
  DrivenModel exported = asExported(path(), toolkit);
  auto isDifferent = [&](llvm::function_ref<void(DrivenModel&)> forge) {
    DrivenModel forged = quantized(path(), toolkit, "int8-blocks:64");
    forge(forged);
    return !verified(exported, forged, shortPlan(), toolkit).equal();
  };
  auto attentionOf = [](DrivenModel& driven) -> Node& {
    for (Node& node : driven.model->graph().nodes())
      if (node.is("ai.kvopt::BlockQuantizedKvSdpa"))
        return node;
    throw std::runtime_error("no attention over blocks of codes");
  };
  EXPECT_FALSE(isDifferent([](DrivenModel&) {}));
  EXPECT_THROW(isDifferent([&](DrivenModel& driven) {
                 Node& node = attentionOf(driven);
                 llvm::SmallVector<Value*, 8> operands;
                 for (unsigned i = 0; i < 7; ++i)
                   operands.push_back(node.operand(i));
                 node.setOperands(operands);
               }),
               std::runtime_error);
  EXPECT_TRUE(isDifferent([&](DrivenModel& driven) {
    Node& node = attentionOf(driven);
    const unsigned each = (static_cast<unsigned>(node.operands().size()) - 7) / 4;
    Value* keyScales = node.operand(7 + 2 * each);
    node.setOperand(7 + 2 * each, node.operand(7 + 3 * each));
    node.setOperand(7 + 3 * each, keyScales);
  }));
  EXPECT_TRUE(isDifferent([&](DrivenModel& driven) {
    Node& node = attentionOf(driven);
    Value* keyScales = node.operand(5);
    node.setOperand(5, node.operand(6));
    node.setOperand(6, keyScales);
  }));
  EXPECT_TRUE(isDifferent([&](DrivenModel& driven) {
    for (ManifestCache& one : driven.manifest.caches)
      for (ManifestCache& other : driven.manifest.caches)
        if (one.role == CacheRole::KeyScale && other.role == CacheRole::ValueScale &&
            one.layer == 0 && other.layer == 0)
          std::swap(one.present, other.present);
  }));
}

/// One byte an element and a float a row, where there were floats.
TEST_P(QuantizedCaches, WriteAQuarterOfTheBytes) {
  DrivenModel plain = rewritten(path(), toolkit);
  DrivenModel int8 = quantized(path(), toolkit);
  int64_t bytes[2] = {};
  int64_t rows = 0;
  for (const ManifestCache& cache : int8.manifest.caches)
    rows += isScale(cache.role) ? std::get<int64_t>(cache.shape[1]) : 0;
  for (bool isInt8 : {false, true}) {
    const DrivenModel& driven = isInt8 ? int8 : plain;
    SessionOptions options;
    options.capacity = 40;
    auto session = openSession(driven, toolkit.runner->kernels(), options);
    TokenStream tokens(*driven.model, 1);
    tokens.feed(*session, 9);
    for (int i = 0; i < 3; ++i)
      tokens.feed(*session, 1);
    bytes[isInt8] = session->statistics().cacheBytesWritten;
    EXPECT_EQ(session->statistics().inPlaceBytesCopied, 0);
  }
  EXPECT_EQ(bytes[1], bytes[0] / 4 + rows * 12 * 4);
}

TEST_P(QuantizedCaches, AreDescribedByTheManifest) {
  DrivenModel int8 = quantized(path(), toolkit);
  EXPECT_EQ(int8.manifest.target, "int8");
  ASSERT_EQ(int8.manifest.caches.size(), 4 * GetParam().sites);
  Manifest again = valueOrThrow(parseManifest(int8.manifest.json()));
  EXPECT_EQ(again.json(), int8.manifest.json());
  for (const ManifestCache& cache : int8.manifest.caches) {
    EXPECT_TRUE(cache.isOneBuffer());
    EXPECT_EQ(cache.dtype, isScale(cache.role) ? ElementType::Float : ElementType::Int8);
    const auto column = int8.model->graph().findValue(cache.past)->type().dim(3);
    EXPECT_EQ(column.value() == 1, isScale(cache.role));
  }
}

TEST_P(QuantizedCaches, OfFourBitsSayHowManyNumbersARowStandsFor) {
  DrivenModel int4 = quantized(path(), toolkit, "int4");
  EXPECT_EQ(int4.manifest.target, "int4");
  Manifest again = valueOrThrow(parseManifest(int4.manifest.json()));
  EXPECT_EQ(again.json(), int4.manifest.json());
  for (const ManifestCache& cache : int4.manifest.caches) {
    EXPECT_EQ(cache.dtype, isScale(cache.role) ? ElementType::Float : ElementType::UInt8);
    const auto bytes = int4.model->graph().findValue(cache.past)->type().dim(3).value();
    if (isScale(cache.role))
      EXPECT_EQ(cache.codeColumns, 0);
    else
      EXPECT_EQ(FourBitRow{cache.codeColumns}.bytes(), bytes.value_or(0));
  }
}

/// Neither threads nor growth change a bit.
TEST_P(QuantizedCaches, ThreadsAndCapacityDoNotMatter) {
  DrivenModel int8 = quantized(path(), toolkit);
  auto outputs = [&](unsigned threads, SessionOptions::Mode mode, int64_t capacity) {
    SessionOptions options;
    options.threads = threads;
    options.mode = mode;
    options.capacity = capacity;
    auto session = openSession(int8, toolkit.runner->kernels(), options);
    TokenStream tokens(*int8.model, 1);
    std::string bytes;
    for (int64_t count : {20, 1, 3, 1, 1}) {
      const StepResult result = tokens.feed(*session, count);
      const TensorView& view = result.outputs.front().tensor.view;
      bytes.append(reinterpret_cast<const char*>(view.data), static_cast<size_t>(view.byteSize()));
    }
    return bytes;
  };
  const std::string expected = outputs(1, SessionOptions::Mode::AsManifest, 64);
  EXPECT_TRUE(outputs(2, SessionOptions::Mode::AsManifest, 64) == expected);
  EXPECT_TRUE(outputs(1, SessionOptions::Mode::AsManifest, 301) == expected);
  EXPECT_TRUE(outputs(2, SessionOptions::Mode::Stateful, 1) == expected);
}

/// An edge that the rewrite got wrong, and a body that says something else, are differences.
TEST_P(QuantizedCaches, WhatIsWrongIsFoundOut) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel wrongScale = quantized(path(), toolkit);
  for (Node& node : wrongScale.model->graph().nodes())
    if (node.is("ai.kvopt::InPlaceQuantizedKvSdpa"))
      node.setAttribute("scale", Attribute::ofFloat(1.1f * node.floatAttr("scale", 1.0f)));
  VerificationReport report = verified(exported, wrongScale, shortPlan(), toolkit);
  EXPECT_FALSE(report.equal());
  EXPECT_FALSE(report.comparison.equal());
  EXPECT_TRUE(report.quantization->equal());

  DrivenModel otherBody = quantized(path(), toolkit);
  Function* body = otherBody.model->findFunction("ai.kvopt::InPlaceQuantizedKvSdpa");
  ASSERT_TRUE(body);
  for (Node& node : body->body.nodes())
    if (node.is("Constant") && node.floatAttr("value_float", 0) == 127.0f)
      node.setAttribute("value_float", Attribute::ofFloat(63.0f));
  report = verified(exported, otherBody, shortPlan(), toolkit);
  EXPECT_FALSE(report.equal());
  EXPECT_TRUE(report.comparison.equal());
  EXPECT_FALSE(report.quantization->rowsIdentical);
}

/// A decoder whose keys' rows [B,1,T,96] have the values among their columns.
std::string latentText(int64_t first, int64_t end) {
  return formatted(
      R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, 1, P, 96] past, float[1, 1, 96] table, float[1, 96, 192] wq)
  => (float[B, S, {width}] logits, float[B, 1, T, 96] present)
<int64[4] heads = {{0, 0, 2, 96}}, int64[3] all_heads = {{0, 0, {width}}}, int64[1] first = {{{first}}},
 int64[1] end = {{{end}}}, int64[1] one = {{1}}, int64[1] axis = {{3}}>
{{
{hidden}
  row = Unsqueeze (hidden, one)
  q_product = MatMul (hidden, wq)
  q_heads = Reshape (q_product, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (q_heads)
  present = Concat <axis = 2> (past, row)
  v = Slice (present, first, end, axis)
  o = ai.kvopt.Sdpa <scale = 0.1, causal = 1> (q, present, v)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  logits = Reshape (ot, all_heads)
}})",
      named("width", 2 * (end - first)), named("first", first), named("end", end),
      named("hidden", decoderHidden));
}

TEST(QuantizedLatentCaches, HaveTheirValuesAmongTheirColumns) {
  Toolkit toolkit;
  TemporaryFolder folder;
  for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, 64}, {32, 96}, {64, 96}})
    for (const char* target : {"int8", "int4"}) {
      SCOPED_TRACE(formatted("columns {} to {}, {}", first, end, target));
      const std::string path = writtenModel(latentText(first, end), toolkit, folder);
      const DrivenModel exported = asExported(path, toolkit);
      const DrivenModel written = rewritten(path, toolkit, "", target);
      EquivalencePlan plan = shortPlan();
      plan.padding = Padding::None;
      const VerificationReport report = verified(exported, written, plan, toolkit);
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      ASSERT_TRUE(report.quantization);
      EXPECT_TRUE(report.quantization->rowsIdentical);
      EXPECT_EQ(report.quantization->bits, target == std::string("int4") ? 4 : 8);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedCaches, shippedModels(), shippedModelName);

/// Every model that the target takes, and why it does not take the others.
TEST_F(CorpusTest, QuantizedCachesEqualTheExportedModelsButForRounding) {
  Toolkit toolkit;
  unsigned verifiedModels = 0, inBlocks = 0, inRings = 0;
  for (const std::string& name : sampleOf(foldersWith(corpusFolder(), "model.onnx"))) {
    SCOPED_TRACE(name);
    const std::string path = (corpusFolder() / name / "model.onnx").string();
    DrivenModel int8;
    try {
      int8 = quantized(path, toolkit);
    } catch (const std::runtime_error& refusal) {
      std::cout << name << ": " << refusal.what() << '\n';
      continue;
    }
    if (!hasQuantizedCaches(int8.manifest)) {
      std::cout << name << ": no cache of its own\n";
      continue;
    }
    try {
      EquivalencePlan plan = shortPlan();
      DrivenModel exported = asExported(path, toolkit);
      plan.tolerance = toleranceFor(exported.model->graph(), 2);
      VerificationReport report = verified(exported, int8, plan, toolkit);
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      ++verifiedModels;
      for (const auto& [target, count] :
           {std::pair("int8-blocks:4", &inBlocks), std::pair("int8-ring", &inRings)}) {
        DrivenModel other;
        try {
          other = quantized(path, toolkit, target);
        } catch (const std::runtime_error&) {
          continue; // refused
        }
        report = verified(exported, other, plan, toolkit);
        EXPECT_TRUE(report.equal()) << target << ": " << verificationSummary(report);
        ++*count;
      }
    } catch (const std::runtime_error& error) {
      // What cannot be run as exported either cannot be compared.
      std::cout << name << ": " << error.what() << '\n';
    }
  }
  EXPECT_GE(verifiedModels, leastInSample(53));
  EXPECT_GE(inBlocks, leastInSample(40));
  EXPECT_GE(inRings, 4u);
}

} // namespace
} // namespace kvopt
