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

TEST_P(InPlaceTest, EqualsTheExportedModel) {
  DrivenModel exported = asExported(path(), toolkit);
  DrivenModel inPlace = rewritten(path(), toolkit);
  for (Padding padding : {Padding::None, Padding::Left, Padding::Right}) {
    SCOPED_TRACE(static_cast<int>(padding));
    VerificationReport report = expectEqualsExported(exported, inPlace, padding);
    EXPECT_EQ(report.cacheBytesCopied, 0);
  }
}

TEST_P(InPlaceTest, IsBitIdenticalToGrowingCachesUnderTheSameKernel) {
  DrivenModel growing = raised(path(), toolkit);
  DrivenModel inPlace = rewritten(path(), toolkit);
  EXPECT_EQ(growing.manifest.contract, CacheUpdate::Grows);
  for (Padding padding : {Padding::None, Padding::Left, Padding::Right})
    for (unsigned threads : {1u, 2u}) {
      EquivalencePlan plan;
      plan.padding = padding;
      plan.tolerance = {0, 0};
      VerificationReport report =
          valueOrThrow(verifyModels(*growing.model, growing.manifest, *inPlace.model,
                                    inPlace.manifest, plan, threads, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      for (const StepComparison& step : report.comparison.steps)
        for (const auto* group : {&step.outputs, &step.caches})
          for (const TensorComparison& tensor : *group) {
            EXPECT_GT(tensor.comparison.compared, 0) << tensor.name;
            EXPECT_TRUE(tensor.comparison.bitExact) << step.phase << " " << tensor.name;
          }
    }
}

TEST_P(InPlaceTest, FunctionBodiesComputeTheSame) {
  DrivenModel inPlace = rewritten(path(), toolkit);
  const auto standard = standardKernels(toolkit);
  const EquivalencePlan plan = shortPlan(*inPlace.model);
  SessionOptions options;
  options.batch = plan.batch;
  options.capacity = plan.totalTokens() + 3;
  auto fused = openSession(inPlace, toolkit.runner->kernels(), options);
  // Zero times a poisoned row is no zero in plain matrix products; a body may read zeros there.
  auto body = valueOrThrow(Session::create(*inPlace.model, *standard, inPlace.manifest, options));
  EXPECT_NE(&fused->graph(), &body->graph());
  ComparisonReport report = valueOrThrow(compareSessions(*fused, *body, plan));
  EXPECT_TRUE(report.equal());
  EXPECT_TRUE(report.tokensEqual);
  EXPECT_GT(body->statistics().inPlaceBytesCopied, 0);
}

INSTANTIATE_TEST_SUITE_P(Shipped, InPlaceTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
