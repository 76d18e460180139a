// Real models whose exporter wrote fused attention operators: all of them are raised but those
// named here, and every recorded step comes out as PyTorch computed it.
#include "driver/recover.h"
#include "ir/onnx/import.h"
#include "runtime/equivalence/reference.h"
#include "runtime/exec/executor.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/corpus.h"

#include <fmt/format.h>
#include <fstream>

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

std::vector<NamedTensor> inputsOf(const ReferenceStep& step) {
  std::vector<NamedTensor> given;
  auto allocator = std::make_shared<Allocator>();
  for (const auto& [name, data] : step.inputs)
    given.push_back({name, valueOrThrow(Tensor::of(allocator, data))});
  return given;
}

/// Every recorded output that the model declares.
void expectStep(const Model& model, const ReferenceStep& step, const KernelRegistry& kernels) {
  std::vector<Tensor> outputs = run(model, inputsOf(step), kernels);
  unsigned compared = 0;
  auto allocator = std::make_shared<Allocator>();
  for (const auto& [name, data] : step.outputs)
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (model.graph().outputs()[i]->name() != name)
        continue;
      Tensor expected = valueOrThrow(Tensor::of(allocator, data));
      Comparison comparison =
          valueOrThrow(compareTensors(outputs[i].view, expected.view, {1e-4, 0}));
      EXPECT_TRUE(comparison.isWithin()) << name << " differs by " << comparison.maxAbs;
      ++compared;
    }
  EXPECT_EQ(compared, outputs.size());
}

/// The first output, the logits, of both; false when the model as exported does not run.
bool expectSameStep(const Model& model, const Model& exported, const ReferenceStep& step,
                    const KernelRegistry& kernels) {
  std::vector<Tensor> before;
  try {
    before = run(exported, inputsOf(step), kernels);
  } catch (const std::runtime_error&) {
    return false;
  }
  std::vector<Tensor> after = run(model, inputsOf(step), kernels);
  double tolerance = after[0].view.element == ElementType::Float16 ? 2e-2 : 2e-5;
  Comparison comparison =
      valueOrThrow(compareTensors(after[0].view, before[0].view, {tolerance, 0}));
  EXPECT_TRUE(comparison.isWithin()) << "logits differ by " << comparison.maxAbs;
  return true;
}

/// Whether the model was found to compute what was recorded (to four bits of weights it does not).
bool hasReference(const fs::path& folder) {
  std::ifstream in(folder / "model.json");
  std::string facts{std::istreambuf_iterator<char>(in), {}};
  return facts.find("\"status\": \"agree") != std::string::npos &&
         facts.find("agree in kind") == std::string::npos;
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

TEST(FusedCorpus, RecordedStepsAgree) {
  if (!fs::is_directory(corpusFolder()))
    GTEST_SKIP() << "no models under " << corpusFolder().string() << "; set KVOPT_CORPUS";
  Toolkit toolkit;
  unsigned models = 0;
  unsigned steps = 0;
  unsigned asExported = 0;
  for (const auto& entry : fs::directory_iterator(corpusFolder())) {
    fs::path path = entry.path() / "model.onnx";
    if (!fs::exists(path))
      continue;
    std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    try {
      auto original = valueOrThrow(importModel(path.string(), toolkit.ops));
      if (fusedIn(*original) == 0)
        continue;
      auto model = raisedModel(path.string(), toolkit);
      EXPECT_EQ(fusedIn(*model), 0u);
      ++models;
      bool agrees = hasReference(entry.path());
      auto exported = raisedModel(path.string(), toolkit, false);
      for (const char* batch : {"b1", "b2"}) {
        fs::path folder = entry.path() / "ref" / batch;
        if (!fs::is_directory(folder))
          continue;
        for (const ReferenceStep& step : valueOrThrow(readReference(folder.string()))) {
          SCOPED_TRACE(formatted("{}, step {}", batch, steps));
          if (agrees) {
            expectStep(*model, step, toolkit.runner->kernels());
            ++steps;
          } else {
            asExported += expectSameStep(*model, *exported, step, toolkit.runner->kernels());
          }
        }
      }
    } catch (const std::runtime_error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  fmt::print("{} models, {} steps like PyTorch, {} like the model as exported\n", models, steps,
             asExported);
  EXPECT_GE(models, 10u);
  EXPECT_GE(steps, 80u);
  EXPECT_GE(asExported, 10u);
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
