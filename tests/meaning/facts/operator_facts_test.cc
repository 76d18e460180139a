// What definitions say of nodes.
#include "meaning/facts/operator_facts.h"

#include "tests/ir/text/text_fixture.h"

namespace kvopt::meaning {
namespace {

/// The facts of the node that makes `y`.
NodeFacts factsOf(const std::string& body, const std::string& constants = "") {
  auto model = ir::readText(R"(<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[B, S, 8] x, float[B, S, 8] z, bool[B, S, 8] c, int64[N] ids, int64[3] shape,
   float[8] w, float[S, 8] u) => (float[A, D, E] y)
)" + constants + "{ " + body + " }",
                            textRegistry());
  if (!model) {
    ADD_FAILURE() << takeDiagnostic(model.takeError()).str();
    return {};
  }
  OperatorFacts facts;
  return facts.of(*(*model)->graph().findValue("y")->producer());
}

TEST(OperatorFacts, MovedElementsAreThoseOfOperandsThatAreNoIndices) {
  for (const auto& [body, made] : std::initializer_list<std::pair<const char*, OperandSet>>{
           {"y = Transpose <perm = [2, 0, 1]> (x)", 1},
           {"y = Reshape (x, shape)", 1},
           {"y = Gather (x, ids)", 1},
           {"y = Where (c, x, z)", 6},
           {"y = Concat <axis = 1> (x, z)", 3},
           {"y = ScatterND (x, shape, u)", 5}}) {
    const NodeFacts facts = factsOf(body);
    EXPECT_TRUE(facts.onlyMoves()) << body;
    EXPECT_EQ(facts.made, made) << body;
    EXPECT_TRUE(facts.isUniform) << body;
  }
  EXPECT_FALSE(factsOf("y = ScatterND <reduction = \"add\"> (x, shape, u)").onlyMoves());
  const NodeFacts cast = factsOf("y = Cast <to = 10> (x)");
  EXPECT_EQ(cast.making, Making::Moved);
  EXPECT_FALSE(cast.onlyMoves());
}

TEST(OperatorFacts, SumsNumbersAndOtherFunctions) {
  EXPECT_EQ(factsOf("y = Sub (x, z)").making, Making::Summed);
  EXPECT_EQ(factsOf("y = Mul (x, z)").making, Making::Finite);
  EXPECT_EQ(factsOf("y = Cos (x)").making, Making::Finite);
  EXPECT_EQ(factsOf("y = Div (x, z)").divisors, 2u);
  for (const char* body : {"y = Exp (x)", "y = Pow (x, z)", "y = Softmax (x)", "y = MatMul (x, z)"})
    EXPECT_EQ(factsOf(body).making, Making::Computed) << body;
}

TEST(OperatorFacts, ExtentsThatContentsDetermine) {
  EXPECT_EQ(factsOf("y = Add (x, z)").shaping, 0u);
  EXPECT_EQ(factsOf("y = Gather (x, ids)").shaping, 0u);
  EXPECT_EQ(factsOf("y = Expand (x, shape)").shaping, 2u);
  EXPECT_EQ(factsOf("y = Slice (x, ids, ids)").shaping, 6u);
  EXPECT_EQ(factsOf("y = Range (ids, ids, ids)").shaping, 7u);
}

TEST(OperatorFacts, TypesOfResults) {
  const auto typeOf = [](const char* body) { return factsOf(body).types[0]; };
  EXPECT_EQ(typeOf("y = Add (x, z)").ofOperand, 0u);
  EXPECT_EQ(typeOf("y = Where (c, x, z)").ofOperand, 1u);
  EXPECT_EQ(typeOf("y = CastLike (x, ids)").ofOperand, 1u);
  EXPECT_EQ(typeOf("y = Cast <to = 10> (x)").own, ir::ElementType::Float16);
  EXPECT_EQ(typeOf("y = Shape (x)").own, ir::ElementType::Int64);
  EXPECT_EQ(typeOf("y = Less (x, z)").own, ir::ElementType::Bool);
}

TEST(OperatorFacts, NothingIsKnownWithoutADefinitionThatAcceptsTheNode) {
  for (const char* body : {"y = NoSuchOperator (x)", "y = Add (x)", "y = BitwiseAnd (ids, ids)",
                           "y = Transpose <perm = [0, 0, 1]> (x)", "y = Squeeze (x)"}) {
    const NodeFacts facts = factsOf(body);
    EXPECT_EQ(facts.making, Making::Computed) << body;
    EXPECT_EQ(facts.shaping, NodeFacts::all) << body;
    EXPECT_FALSE(facts.isUniform) << body;
    EXPECT_TRUE(facts.types.empty()) << body;
  }
}

TEST(OperatorFacts, WindowsAreNotUniform) {
  EXPECT_FALSE(factsOf("y = Conv (x, z)").isUniform);
  EXPECT_FALSE(factsOf("y = MaxPool <kernel_shape = [3]> (x)").isUniform);
  EXPECT_TRUE(factsOf("y = CumSum (x, axis)", "<int64 axis = {1}>").isUniform);
}

TEST(OperatorFacts, WhatTheCallerOfAFunctionGivesIsNotKnown) {
  auto model = ir::readText(R"(<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
g (float[B, S] x) => (float[B, S] y) { y = own.f <to = 1> (x) }
<domain: "own", opset_import: ["" : 21]>
f <to> (a) => (b) { b = Cast <to: int = @to> (a) }
)",
                            textRegistry());
  ASSERT_TRUE(static_cast<bool>(model)) << takeDiagnostic(model.takeError()).str();
  OperatorFacts facts;
  const NodeFacts& cast = facts.of(*(*model)->functions.front()->body.nodes().begin());
  EXPECT_TRUE(cast.isUniform);
  EXPECT_TRUE(cast.types.empty());
  EXPECT_EQ(cast.making, Making::Computed);
}

} // namespace
} // namespace kvopt::meaning
