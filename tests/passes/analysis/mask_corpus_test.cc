// What is proved of the masks of real exports, in the graphs as exporters wrote them.
#include "support/format.h"
#include "tests/passes/analysis/raw_masks.h"

#include "ir/onnx/import.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "tests/ir/corpus.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

struct Seen {
  bool isCross = false;
  bool isCausal = false;
  bool isSeparated = true; ///< padding apart, nothing else left
  int64_t window = 0;
  std::string text;
};

Seen seenBy(const RawMasks& raw, MaskAnalysis& analysis) {
  Seen seen;
  for (const Value* mask : raw.masks) {
    MaskFacts facts = analysis.facts({mask, raw.space, false, 0});
    seen.isCausal |= facts.causal == Proof::Proved;
    seen.isSeparated &=
        facts.remaining != MaskFacts::Remaining::Other || facts.bias == MaskFacts::Bias::ByDistance;
    seen.window = std::max(seen.window, facts.window);
    seen.text += (seen.text.empty() ? "" : " | ") + facts.text;
  }
  // Keys of an encoder: as many as the encoder's rows, whatever the decoder's are.
  const Dim past = raw.space.past();
  seen.isCross = !past.isUnknown() && !past.isKnownNonNegative();
  return seen;
}

std::vector<Seen> everyAttention(Graph& graph, MaskAnalysis& analysis) {
  std::vector<Seen> all;
  forEachGraph(graph, [&](Graph& visited) {
    for (const Node& node : visited.nodes()) {
      if (node.is("Softmax"))
        all.push_back(seenBy(rawMasksOf(node), analysis));
      if (node.is("Attention") && node.operand(1)) {
        const TensorType& query = node.operand(0)->type();
        RawMasks raw{
            &node,
            IndexSpace(query.dim(0), query.dim(1), query.dim(2), node.operand(1)->type().dim(2)),
            {}};
        if (node.operand(3))
          raw.masks.push_back(node.operand(3));
        all.push_back(seenBy(raw, analysis));
      }
    }
  });
  return all;
}

/// Windows by layer as model.json tells them; empty when it tells of none.
std::vector<int64_t> windowsOf(const nlohmann::json& facts, size_t layers) {
  if (!facts.contains("sliding_window") || !facts["sliding_window"].is_number())
    return {};
  std::vector<int64_t> windows(layers, facts["sliding_window"].get<int64_t>());
  // GPT-Neo alternates without saying so.
  for (size_t layer = 0; layer < layers && facts.value("family", "") == "gptneo"; layer += 2)
    windows[layer] = 0;
  const nlohmann::json types = facts.value("layer_types", nlohmann::json());
  if (types.is_array())
    for (size_t layer = 0; layer < layers && layer < types.size(); ++layer)
      if (types[layer] != "sliding_attention")
        windows[layer] = 0;
  return windows;
}

class MaskCorpusTest : public testing::Test {
protected:
  void SetUp() override {
    registerAll(ops);
    if (corpusModels().empty())
      GTEST_SKIP() << "no models under " << corpusFolder().string() << "; set KVOPT_CORPUS";
  }
  OpRegistry ops;
};

TEST_F(MaskCorpusTest, DecodersAreCausalAndPaddingIsSeparate) {
  unsigned proved = 0;
  unsigned byPosition = 0;
  unsigned cross = 0;
  unsigned windows = 0;
  for (const std::string& path : corpusModels()) {
    std::ifstream file(std::filesystem::path(path).parent_path() / "model.json");
    nlohmann::json described = nlohmann::json::parse(file, nullptr, false);
    if (!described.is_object())
      continue;
    SCOPED_TRACE(path);
    auto model = importModel(path, ops);
    ASSERT_TRUE(static_cast<bool>(model)) << takeDiagnostic(model.takeError()).str();
    if (llvm::Error error = inferShapes((*model)->graph()))
      FAIL() << takeDiagnostic(std::move(error)).str();
    MaskAnalysis analysis;
    std::vector<Seen> attentions = everyAttention((*model)->graph(), analysis);
    std::vector<int64_t> expected = windowsOf(described, attentions.size());
    for (size_t layer = 0; layer < attentions.size(); ++layer) {
      const Seen& seen = attentions[layer];
      SCOPED_TRACE(formatted("attention {}: {}", layer, seen.text));
      if (seen.isCross) {
        ++cross;
        EXPECT_FALSE(seen.isCausal);
        continue;
      }
      if (!seen.isCausal) {
        // Rows whose positions are an input, rows that an input groups (packed sequences), and
        // layers of unknown extents.
        bool isByInput = seen.text.find("position_ids[") != std::string::npos ||
                         seen.text.find(" == ") != std::string::npos ||
                         seen.text.find("not understood") != std::string::npos || seen.text.empty();
        EXPECT_TRUE(isByInput);
        ++byPosition;
        continue;
      }
      ++proved;
      if (seen.text.find("position_ids[") == std::string::npos) {
        EXPECT_TRUE(seen.isSeparated);
      }
      if (layer < expected.size()) {
        EXPECT_EQ(seen.window, expected[layer]);
        windows += expected[layer] != 0;
      } else {
        EXPECT_EQ(seen.window, 0);
      }
    }
  }
  EXPECT_GE(proved, 70u);
  EXPECT_GE(cross, 12u);
  EXPECT_GE(windows, 5u);
  RecordProperty("proved", static_cast<int>(proved));
  RecordProperty("unproven", static_cast<int>(byPosition));
}

} // namespace
} // namespace kvopt
