// Models written in ONNX's own operators against the models that came in, and against what PyTorch
// computed.
#include "driver/forms/form_table.h"
#include "driver/verify/references.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/corpus/reference_rows.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

using OnnxTargetTest = ShippedModelTest;

std::vector<std::string> operatorsOf(const Model& model) {
  std::vector<std::string> names;
  for (const Node& node : model.graph().nodes())
    names.push_back(node.op().str());
  return names;
}

TEST_P(OnnxTargetTest, WritesOnnxOperatorsOnly) {
  for (const char* target : {"onnx24", "onnx23"}) {
    SCOPED_TRACE(target);
    const DrivenModel driven = rewritten(path(), toolkit, "", target);
    const std::vector<std::string> names = operatorsOf(*driven.model);
    EXPECT_EQ(llvm::count(names, "Attention"), GetParam().sites);
    EXPECT_EQ(llvm::count(names, "Softmax"), 0);
    EXPECT_EQ(llvm::count(names, "TensorScatter"),
              target == std::string("onnx24") ? 2 * GetParam().sites : 0);
    EXPECT_TRUE(llvm::none_of(names, [](llvm::StringRef name) { return name.contains("::"); }));
    EXPECT_TRUE(driven.model->functions.empty());
    EXPECT_EQ(driven.model->opsets.count("ai.kvopt"), 0u);
    EXPECT_EQ(driven.model->graph().opsetVersion(), target == std::string("onnx24") ? 24 : 23);
  }
}

TEST_P(OnnxTargetTest, KeepsTheIrVersion) {
  const DrivenModel exported = asExported(path(), toolkit);
  for (const char* target : {"onnx24", "onnx23"})
    EXPECT_EQ(rewritten(path(), toolkit, "", target).model->irVersion, exported.model->irVersion);
}

TEST_P(OnnxTargetTest, ScattersOnlyTheNewRowsInPlace) {
  const DrivenModel driven = rewritten(path(), toolkit, "", "onnx24");
  SessionOptions options;
  options.capacity = 40;
  options.batch = 2;
  auto session = openSession(driven, toolkit.runner->kernels(), options);
  TokenStream tokens(*driven.model, 2);
  for (int64_t count : {7, 1, 3, 1}) {
    const int64_t before = session->length();
    std::vector<std::byte*> memory;
    for (size_t i = 0; i < session->cacheCount(); ++i)
      memory.push_back(session->cacheBuffer(i).data);
    tokens.feed(*session, count);
    int64_t rowBytes = 0;
    for (size_t i = 0; i < session->cacheCount(); ++i) {
      EXPECT_EQ(session->cacheBuffer(i).data, memory[i]);
      rowBytes += session->cacheBuffer(i).byteSize() / 40;
    }
    EXPECT_EQ(session->length(), before + count);
    EXPECT_EQ(session->statistics().lastRun.inPlaceBytesCopied, 0);
    EXPECT_EQ(session->statistics().lastRun.cacheBytesWritten, count * rowBytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, OnnxTargetTest, shippedModels(), shippedModelName);

using OnnxTargetCorpusTest = CorpusTest;

TEST_F(OnnxTargetCorpusTest, EveryRecordedCaseAgreesOrTheModelIsRefused) {
  const std::vector<std::string> models = sampleOf(foldersWith(corpusFolder(), "ref"));
  std::vector<std::string> paths;
  for (const std::string& model : models)
    paths.push_back((corpusFolder() / model / "model.onnx").string());
  Toolkit toolkit;
  // GroupQueryAttention puts new rows behind each batch row's own.
  const char* lengths = "target-lacks-feature";
  const std::map<std::string, std::map<std::string, std::string>> refused = {
      {"onnx24", {{"c_tri_gather-ts14-custom", "mask-fill-inexact"}}},
      {"primitive", {{"c_tri_gather-ts14-custom", "mask-fill-inexact"}}},
      {"onnx23",
       {{"c_tri_gather-ts14-custom", "mask-fill-inexact"},
        {"gemma2-genai-fp32-cpu", lengths},
        {"llama_gqa-genai-fp32-cpu", lengths},
        {"llama_gqa-genai-int4-cpu", lengths},
        {"mistral_sw-genai-fp32-cpu", lengths},
        {"mistral_sw-genai-fp32-cpu-windowedkvcache", lengths},
        {"phi3_g-genai-fp32-cpu", lengths},
        {"qwen2-genai-fp32-cpu", lengths}}},
  };
  for (const auto& [target, reasons] : refused) {
    SCOPED_TRACE(target);
    // Only its buffers can grow: others' caches grow in any case.
    const std::vector<ModelForm> forms =
        target == "onnx24" ? std::vector<ModelForm>{ModelForm::Shared, ModelForm::Stateful}
                           : std::vector<ModelForm>{ModelForm::Shared};
    llvm::Expected<ReferenceTable> table =
        compareWithReferences(paths, forms, 1, toolkit, valueOrThrow(presetForm(target)));
    ASSERT_TRUE(static_cast<bool>(table));
    EXPECT_TRUE(table->equal()) << failuresOf(*table);
    for (const ReferenceRow& row : table->rows)
      for (const ReferenceResult& result : row.results) {
        SCOPED_TRACE(folderOf(row) + ": " + result.reason);
        const auto expected = reasons.find(folderOf(row));
        const bool isRefused = expected != reasons.end();
        EXPECT_EQ(result.verdict, isRefused ? ReferenceVerdict::Refused : ReferenceVerdict::Equal);
        if (isRefused) {
          EXPECT_NE(result.reason.find(expected->second), std::string::npos);
        }
      }
  }
}

} // namespace
} // namespace kvopt
