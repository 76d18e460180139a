// Real models whose exporter wrote fused attention operators: all of them are raised.
#include "driver/recover.h"
#include "ir/onnx/import.h"
#include "runtime/exec/executor.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/corpus.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

bool isFused(const Node& node) {
  return node.is("com.microsoft::GroupQueryAttention") ||
         node.is("com.microsoft::MultiHeadAttention") || node.is("com.microsoft::Attention") ||
         node.is("Attention");
}

unsigned fusedIn(const Model& model) {
  unsigned count = 0;
  for (const Node& node : model.graph().nodes())
    count += isFused(node);
  return count;
}

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Runs one step; `given` holds a tensor for every input.
std::vector<Tensor> run(const Model& model, llvm::ArrayRef<NamedTensor> given,
                        const KernelRegistry& kernels) {
  auto executor = valueOrThrow(Executor::create(model, kernels));
  std::vector<NamedView> views;
  for (const auto& input : model.graph().inputs())
    for (const NamedTensor& tensor : given)
      if (tensor.name == input->name())
        views.push_back({tensor.name, tensor.tensor.view});
  return valueOrThrow(executor->run(views));
}

std::unique_ptr<Model> raisedModel(const std::string& path, const Toolkit& toolkit,
                                   bool afresh = true) {
  auto model = valueOrThrow(importModel(path, toolkit.ops));
  PassContext context(toolkit.rules, toolkit.targets);
  PassManager manager(toolkit.passes, {});
  successOrThrow(manager.addPipeline(
      afresh ? "infer-shapes,normalize,raise-attention,normalize,eliminate-dead-nodes"
             : "infer-shapes"));
  successOrThrow(manager.run(*model, context));
  return model;
}

/// What they compute is compared with recordings in every form (corpus_reference_test.cc).
TEST(FusedCorpus, IsRaised) {
  if (!fs::is_directory(corpusFolder()))
    GTEST_SKIP() << "no models under " << corpusFolder().string() << "; set KVOPT_CORPUS";
  Toolkit toolkit;
  unsigned models = 0;
  for (const auto& entry : fs::directory_iterator(corpusFolder())) {
    const fs::path path = entry.path() / "model.onnx";
    if (!fs::exists(path))
      continue;
    SCOPED_TRACE(entry.path().filename().string());
    if (fusedIn(*valueOrThrow(importModel(path.string(), toolkit.ops))) == 0)
      continue;
    EXPECT_EQ(fusedIn(*raisedModel(path.string(), toolkit)), 0u);
    ++models;
  }
  EXPECT_GE(models, 10u);
}

/// An extent of an input, by what exporters call it.
int64_t extentOf(const Dim& extent) {
  return valueOrThrow([&]() -> llvm::Expected<int64_t> {
    auto value = extent.evaluate([](llvm::StringRef symbol) -> std::optional<int64_t> {
      if (symbol.contains("batch"))
        return 2;
      if (symbol.contains("total"))
        return 7;
      return symbol.contains("past") ? 4 : 3;
    });
    return value ? llvm::Expected<int64_t>(*value) : usageError("the extent is unknown");
  }());
}

/// Models without recorded steps, against themselves as exported.
TEST(FusedCorpus, StackedPastsAgreeWithTheModelAsExported) {
  fs::path path =
      corpusFolder() / "real_models" / "hf-internal-testing_tiny-random-gpt2-fp32" / "past.onnx";
  if (!fs::exists(path))
    GTEST_SKIP() << "no models under " << corpusFolder().string() << "; set KVOPT_CORPUS";
  Toolkit toolkit;
  auto exported = raisedModel(path.string(), toolkit, false);
  auto model = raisedModel(path.string(), toolkit);
  EXPECT_EQ(fusedIn(*exported), 5u);
  EXPECT_EQ(fusedIn(*model), 0u);
  auto allocator =
      valueOrThrow(Executor::create(*exported, toolkit.runner->kernels()))->allocator();
  std::vector<NamedTensor> given;
  std::mt19937 generator(3);
  for (const auto& input : exported->graph().inputs()) {
    Extents shape;
    for (const Dim& extent : input->type().shape())
      shape.push_back(extentOf(extent));
    Tensor tensor = valueOrThrow(Tensor::create(allocator, input->type().elementType(), shape));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < tensor.view.elementCount(); ++i)
      if (tensor.view.element == ElementType::Float)
        tensor.view.as<float>()[i] = uniform(generator);
      else // ids, positions, and a mask that hides the first column of row 0
        tensor.view.as<int32_t>()[i] = input->name().contains("mask") ? i != 0 : 1 + i % 5;
    given.push_back({input->name().str(), std::move(tensor)});
  }
  std::vector<Tensor> before = run(*exported, given, toolkit.runner->kernels());
  std::vector<Tensor> after = run(*model, given, toolkit.runner->kernels());
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    Comparison comparison =
        valueOrThrow(compareTensors(after[i].view, before[i].view, Tolerance{1e-5, 0}));
    EXPECT_TRUE(comparison.isWithin()) << "output " << i << " by " << comparison.maxAbs;
    EXPECT_GT(comparison.compared, 0);
  }
}

} // namespace
} // namespace kvopt
