// What the rewrite to one buffer per cache looks like, and that it computes the same.
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

using InPlaceTest = ShippedModelTest;

/// Whether `value` was broadcast, seen through operators that only move data.
bool comesFromBroadcast(const Value* value) {
  static const std::set<std::string> movers = {"Reshape",   "Transpose", "Identity",
                                               "Unsqueeze", "Squeeze",   "Cast"};
  while (value && value->producer()) {
    std::string op = value->producer()->op().str();
    if (op == "Expand" || op == "Tile")
      return true;
    if (!movers.count(op))
      return false;
    value = value->producer()->operand(0);
  }
  return false;
}

TEST_P(InPlaceTest, NoConcatOfACacheAndNoBroadcastIsLeft) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel inPlace = rewritten(path(), toolkit);
  std::set<std::string> pasts;
  for (const ManifestCache& cache : inPlace.manifest.caches)
    pasts.insert(cache.past);
  EXPECT_EQ(pasts.size(), 2 * GetParam().sites);

  auto cacheConcats = [&](Graph& graph) {
    unsigned count = 0;
    for (const Node& node : graph.nodes())
      if (node.op() == "Concat")
        for (unsigned i = 0; i < node.operands().size(); ++i)
          count += node.operand(i) && pasts.count(node.operand(i)->name().str()) ? 1 : 0;
    return count;
  };
  // The exported model of opset 23 may hold its caches in Attention itself.
  unsigned before = cacheConcats(exported.model->graph());
  EXPECT_TRUE(before == 2 * GetParam().sites || before == 0);
  EXPECT_EQ(cacheConcats(inPlace.model->graph()), 0u);

  unsigned fused = 0;
  for (const Node& node : inPlace.model->graph().nodes()) {
    EXPECT_NE(node.op().str(), "ai.kvopt::Sdpa");
    EXPECT_NE(node.op().str(), "Softmax");
    if (node.op().str() != "ai.kvopt::InPlaceKvSdpa")
      continue;
    ++fused;
    EXPECT_FALSE(comesFromBroadcast(node.operand(1))) << node.name().str();
    EXPECT_FALSE(comesFromBroadcast(node.operand(2))) << node.name().str();
    EXPECT_TRUE(node.operand(3)->isGraphInput());
    EXPECT_TRUE(node.operand(4)->isGraphInput());
    EXPECT_TRUE(node.result(1).isGraphOutput());
    EXPECT_TRUE(node.result(2).isGraphOutput());
  }
  EXPECT_EQ(fused, GetParam().sites);
}

TEST_P(InPlaceTest, KeepsEveryInputAndOutputAndAddsTheLength) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel inPlace = rewritten(path(), toolkit);
  auto inputs = [](const Model& model) {
    std::vector<std::string> names;
    for (const std::unique_ptr<Value>& input : model.graph().inputs())
      names.push_back(input->name().str());
    return names;
  };
  auto outputs = [](const Model& model) {
    std::vector<std::string> names;
    for (const Value* output : model.graph().outputs())
      names.push_back(output->name().str());
    return names;
  };
  std::vector<std::string> expected = inputs(*exported.model);
  expected.push_back("past_length");
  EXPECT_EQ(inputs(*inPlace.model), expected);
  EXPECT_EQ(outputs(*inPlace.model), outputs(*exported.model));
  ASSERT_EQ(inPlace.manifest.lengths.size(), 1u);
  EXPECT_EQ(inPlace.manifest.lengths[0].input, "past_length");
}

INSTANTIATE_TEST_SUITE_P(Shipped, InPlaceTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
