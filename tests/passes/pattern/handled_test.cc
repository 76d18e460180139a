// What a node says beyond what a rule or target handles is refused by its name, also by every
// target.
#include "passes/pattern/handled.h"

#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/analysis/cache/site.h"
#include "passes/targets/target.h"
#include "support/diagnostic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;
using namespace pattern;
using namespace targets;

namespace {

constexpr llvm::StringLiteral onlyScale[] = {"scale"};
constexpr llvm::StringLiteral threeOperands[] = {"query", "key", "value"};

/// Operators in which ai.kvopt::Sdpa has gained an attribute and an operand.
class HandledTest : public ::testing::Test {
protected:
  HandledTest() {
    registerAll(ops);
    const OpDef& known = *ops.find(OpName("ai.kvopt", "Sdpa"), 1);
    OpDef& grown = ops.add(known.name, 2);
    grown.operands = known.operands;
    grown.results = known.results;
    grown.inferShapes = known.inferShapes;
    for (const FormalAttribute& attribute : known.attributes)
      grown.attributes.push_back(
          {attribute.name, attribute.kind, attribute.required,
           attribute.defaultValue ? std::optional(attribute.defaultValue->clone()) : std::nullopt});
    grown.operands.push_back({"gate", Formal::Arity::Optional, false});
    grown.attributes.push_back({"novel", AttributeKind::Int, false, Attribute::ofInt(0)});
  }

  /// One attention over caches that grow, with `attributes` and `operands` in addition.
  std::unique_ptr<Model> model(const std::string& attributes, const std::string& operands) {
    auto read = readText(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 2]>
attention (float[2, 4, S, 16] q, float[2, 4, S, 16] k, float[2, 4, S, 16] v,
           float[2, 4, P, 16] past_key, float[2, 4, P, 16] past_value, float[4] sinks,
           float[2, 4, S, 16] gate)
  => (float[2, 4, S, 16] o, float[2, 4, "P + S", 16] present_key,
      float[2, 4, "P + S", 16] present_value)
{
  present_key = Concat <axis = 2> (past_key, k)
  present_value = Concat <axis = 2> (past_value, v)
  [attention] o = ai.kvopt.Sdpa <scale = 0.25, causal = 1)" +
                             attributes + "> (q, present_key, present_value" + operands + ")\n}\n",
                         ops);
    if (!read) {
      ADD_FAILURE() << takeDiagnostic(read.takeError()).str();
      return nullptr;
    }
    if (llvm::Error error = inferShapes((*read)->graph()))
      ADD_FAILURE() << takeDiagnostic(std::move(error)).str();
    return std::move(*read);
  }

  static Node& attention(Model& model) {
    for (Node& node : model.graph().nodes())
      if (node.op() == "ai.kvopt::Sdpa")
        return node;
    llvm_unreachable("the text has one");
  }

  OpRegistry ops;
};

TEST_F(HandledTest, WhatIsNamedOrSaysWhatSilenceSaysIsHandled) {
  auto plain = model("", "");
  const llvm::StringLiteral both[] = {"scale", "causal"};
  EXPECT_EQ(unhandled(attention(*plain), {both, threeOperands}), std::nullopt);
  auto written = model(", softcap = 0.0, novel = 0", "");
  EXPECT_EQ(unhandled(attention(*written), {both, threeOperands}), std::nullopt);
}

TEST_F(HandledTest, AnAttributeIsRefusedByItsName) {
  auto plain = model("", "");
  auto failure = unhandled(attention(*plain), {onlyScale, threeOperands});
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(failure->str(), ::testing::HasSubstr("causal"));
  EXPECT_EQ(failure->node, "attention");
}

TEST_F(HandledTest, AnOperandIsRefusedByItsFormalName) {
  auto given = model("", ", , sinks");
  const llvm::StringLiteral both[] = {"scale", "causal"};
  auto failure = unhandled(attention(*given), {both, threeOperands});
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(failure->str(), ::testing::HasSubstr("sinks"));
}

TEST_F(HandledTest, EveryTargetRefusesWhatItHasNotLearnedOf) {
  TargetRegistry targets;
  registerAll(targets);
  ASSERT_FALSE(targets.all().empty());
  for (const auto& target : targets.all()) {
    SCOPED_TRACE(target->name().str());
    const std::pair<std::string, std::string> cases[] = {
        {"", ""}, {", novel = 1", ""}, {"", ", , , , gate"}};
    for (const auto& [attributes, operands] : cases) {
      auto graph = model(attributes, operands);
      SiteList sites = findSites(graph->graph());
      ASSERT_EQ(sites.size(), 1u);
      auto failure = target->supports(sites.front(), *graph);
      const bool isGrown = !attributes.empty() || !operands.empty();
      EXPECT_EQ(failure.has_value(), isGrown) << (failure ? failure->str() : "");
      if (failure && isGrown) {
        EXPECT_THAT(failure->str(), ::testing::HasSubstr(attributes.empty() ? "gate" : "novel"));
      }
    }
  }
}

} // namespace
} // namespace kvopt
