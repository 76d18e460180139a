// The ONNX project's node tests: what recovery makes of them computes the recorded outputs, every
// Attention that Sdpa can express is raised, and nothing else is taken for one.
#include "driver/recover.h"
#include "ir/onnx/import.h"
#include "runtime/equivalence/reference.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/corpus.h"

#include <fmt/format.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> nodeTests() {
  std::vector<std::string> folders;
  std::error_code code;
  for (fs::directory_iterator entry(corpusFolder() / "onnx_node_tests", code), end;
       !code && entry != end; entry.increment(code))
    if (fs::exists(entry->path() / "model.onnx"))
      folders.push_back(entry->path().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<std::pair<std::string, TensorRef>> recorded(const std::string& folder,
                                                        const char* kind) {
  std::vector<std::pair<std::string, TensorRef>> tensors;
  for (unsigned i = 0;; ++i) {
    std::string path = formatted("{}/test_data_set_0/{}_{}.pb", folder, kind, i);
    if (!fs::exists(path))
      return tensors;
    tensors.push_back(valueOrThrow(importTensorFile(path)));
  }
}

unsigned countOf(const Graph& graph, OpName op) {
  unsigned count = 0;
  for (const Node& node : graph.nodes())
    count += node.is(op);
  return count;
}

/// Runs the model on the recorded inputs and compares every recorded output.
void expectRecordedOutputs(const Model& model, const std::string& folder,
                           const KernelRegistry& kernels) {
  auto executor = valueOrThrow(Executor::create(model, kernels));
  std::vector<Tensor> kept;
  std::vector<NamedView> inputs;
  auto given = recorded(folder, "input");
  for (const auto& [name, data] : given) {
    kept.push_back(valueOrThrow(Tensor::of(executor->allocator(), data)));
    inputs.push_back({name, kept.back().view});
  }
  std::vector<Tensor> outputs = valueOrThrow(executor->run(inputs));
  unsigned compared = 0;
  for (const auto& [name, data] : recorded(folder, "output"))
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (model.graph().outputs()[i]->name() != name)
        continue;
      Tensor expected = valueOrThrow(Tensor::of(executor->allocator(), data));
      bool half = expected.view.element == ElementType::Float16;
      Comparison comparison =
          valueOrThrow(compareTensors(outputs[i].view, expected.view, {half ? 4e-3 : 1e-5, 0}));
      EXPECT_TRUE(comparison.isWithin()) << name << " differs by " << comparison.maxAbs;
      ++compared;
    }
  EXPECT_EQ(compared, outputs.size());
}

/// What Sdpa has no result or option for.
bool isExpressible(const Node& attention) {
  auto results = attention.results();
  return results.size() < 4 || results[3].isAbsent();
}

TEST(NodeCorpus, RaisedAttentionComputesTheRecordedOutputs) {
  std::vector<std::string> folders = nodeTests();
  if (folders.empty())
    GTEST_SKIP() << "no node tests under " << corpusFolder().string() << "; set KVOPT_CORPUS";
  Toolkit toolkit;
  unsigned raisedCount = 0;
  unsigned refused = 0;
  unsigned expandedRaised = 0;
  for (const std::string& folder : folders) {
    SCOPED_TRACE(fs::path(folder).filename().string());
    try {
      auto original = valueOrThrow(importModel(folder + "/model.onnx", toolkit.ops));
      unsigned attentions = countOf(original->graph(), "Attention");
      unsigned expressible = 0;
      for (const Node& node : original->graph().nodes())
        expressible += node.is("Attention") && isExpressible(node);
      NearMissList nearMisses;
      RecoveredModel recovered =
          valueOrThrow(recoverModel(folder + "/model.onnx", toolkit, {.nearMisses = &nearMisses}));
      unsigned sdpas = countOf(recovered.model->graph(), "ai.kvopt::Sdpa");
      bool isAttention = folder.find("test_attention") != std::string::npos;
      if (!isAttention) {
        EXPECT_EQ(sdpas, 0u);
        EXPECT_TRUE(recovered.context->sites.empty());
      }
      if (attentions != 0) {
        EXPECT_EQ(sdpas, expressible);
        raisedCount += sdpas;
        refused += attentions - expressible;
        if (expressible != attentions) {
          EXPECT_FALSE(nearMisses.ranked().empty());
        }
      } else if (sdpas != 0) {
        ++expandedRaised;
      }
      if (sdpas != 0)
        expectRecordedOutputs(*recovered.model, folder, toolkit.runner->kernels());
    } catch (const std::runtime_error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  RecordProperty("raised", static_cast<int>(raisedCount));
  RecordProperty("refused", static_cast<int>(refused));
  RecordProperty("expanded", static_cast<int>(expandedRaised));
  fmt::print("{} raised, {} refused, {} function forms raised\n", raisedCount, refused,
             expandedRaised);
  EXPECT_GT(raisedCount, 40u);
}

} // namespace
} // namespace kvopt
