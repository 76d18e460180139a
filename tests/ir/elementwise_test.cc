// Elementwise operators, in every version of their definitions.
#include "ir/elementwise.h"

#include "ir/shapes/shape_inference.h"
#include "meaning/definitions.h"
#include "support/format.h"
#include "tests/ir/text/text_fixture.h"

#include <map>
#include <set>

namespace kvopt {
using namespace ir;

namespace {

using Function = ElementFunction;

/// The last node of a model.
struct LastNode {
  std::unique_ptr<Model> model;
  const Node* operator->() const { return &model->graph().nodes().back(); }
  const Node& operator*() const { return model->graph().nodes().back(); }
};

LastNode lastNode(int opset, const std::string& inputs, const std::string& nodes) {
  auto model = readOrFail(formatted(
      "<ir_version: 8, opset_import: [\"\" : {}, \"com.microsoft\" : 1]> g ({}) => () {{ {} }}",
      opset, inputs, nodes));
  EXPECT_TRUE(model && !inferShapes(model->graph())) << nodes;
  return {std::move(model)};
}

TEST(ElementwiseTest, EveryFunctionHasItsOperators) {
  std::map<Function, std::set<std::string>> found;
  for (const OpDef* definition : textRegistry().all())
    if (definition->elementFunction)
      found[*definition->elementFunction].insert(definition->name.str());
  const std::map<Function, std::set<std::string>> expected = {
      {Function::Sum, {"Add", "Mean", "Neg", "Sub", "Sum"}},
      {Function::Product, {"Mul"}},
      {Function::Quotient, {"Div", "Mod"}},
      {Function::Bound, {"Clip", "Max", "Min"}},
      {Function::Rounding, {"Ceil", "Floor", "Round"}},
      {Function::Nonlinear,
       {"Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Celu",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
        "Mish",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "SwiGLU",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "com.microsoft::BiasGelu",
        "com.microsoft::FastGelu",
        "com.microsoft::Gelu",
        "com.microsoft::QuickGelu"}},
      {Function::Comparison, {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}},
      {Function::Test, {"IsInf", "IsNaN"}},
      {Function::Logic, {"And", "Not", "Or", "Xor"}},
      {Function::Bits,
       {"BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"}},
      {Function::Choice, {"Where"}},
  };
  EXPECT_EQ(found, expected);
}

TEST(ElementwiseTest, EveryVersionComputesTheSameOfElementsAndMovesNone) {
  std::map<std::string, std::set<std::optional<Function>>> functions;
  for (const OpDef* definition : textRegistry().all()) {
    functions[definition->name.str()].insert(definition->elementFunction);
    if (!definition->elementFunction)
      continue;
    SCOPED_TRACE(definition->name.str() + " " + std::to_string(definition->since));
    EXPECT_FALSE(definition->movement);
    EXPECT_EQ(definition->results.size(), 1u);
    EXPECT_EQ(definition->maxResults(), 1u);
    EXPECT_TRUE(meaning::definitions().find(definition->name, definition->since));
  }
  for (const auto& [name, kinds] : functions)
    EXPECT_EQ(kinds.size(), 1u) << name;
}

/// One row of another operand is broadcast: the result has the shape of the largest operand.
TEST(ElementwiseTest, ResultsHaveTheShapeThatOperandsBroadcastTo) {
  unsigned checked = 0;
  for (const OpDef* definition : textRegistry().all()) {
    if (!definition->elementFunction)
      continue;
    const bool ofTruths = definition->elementFunction == Function::Logic;
    const unsigned count = definition->minOperands();
    std::string inputs, operands;
    for (unsigned i = 0; i < count; ++i) {
      const bool isTruth = ofTruths || (i == 0 && definition->elementFunction == Function::Choice);
      // The first operand of PRelu and of biased activations is the larger one; SwiGLU repeats
      // nothing.
      const bool isWhole = i == 0 || definition->name == OpName("SwiGLU");
      inputs += formatted("{}{}[{}] x{}", i == 0 ? "" : ", ", isTruth ? "bool" : "float",
                          isWhole ? "B, 3, 4" : "4", i);
      operands += formatted("{}x{}", i == 0 ? "" : ", ", i);
    }
    std::string attributes;
    if (definition->name == OpName("BitCast"))
      attributes = " <to = 6>";
    if (definition->name == OpName("BitShift"))
      attributes = " <direction = \"LEFT\">";
    std::string name = definition->name.type().str();
    if (!definition->name.isOnnx())
      name = definition->name.domain().str() + "." + name;
    const int opset = definition->name.isOnnx() ? static_cast<int>(definition->since) : 18;
    const LastNode node =
        lastNode(opset, inputs, formatted("y = {}{}({})", name, attributes, operands));
    EXPECT_EQ(node->definition(), definition) << name;
    EXPECT_EQ(elementFunction(*node), definition->elementFunction) << name;
    EXPECT_TRUE(isElementwise(*node)) << name;
    const TensorType& type = node->result().type();
    ASSERT_TRUE(type.hasRank()) << name;
    EXPECT_EQ(type.str().substr(type.str().find('[')), "[B, 3, 4]") << name;
    ++checked;
  }
  EXPECT_GT(checked, 70u);
}

TEST(ElementwiseTest, CopiesAndConversionsKeepPlaces) {
  EXPECT_TRUE(isElementwise(*lastNode(17, "float[B, 4] x", "y = Identity(x)")));
  const LastNode cast = lastNode(17, "float[B, 4] x", "y = Cast <to = 10>(x)");
  EXPECT_TRUE(isElementwise(*cast));
  EXPECT_EQ(elementFunction(*cast), std::nullopt);
  // The type of the second operand is read, whatever its shape.
  EXPECT_FALSE(isElementwise(*lastNode(17, "float[B, 4] x, float16[7] t", "y = CastLike(x, t)")));
}

TEST(ElementwiseTest, OthersAreNot) {
  for (const char* node :
       {"y = Softmax(x)", "y = Transpose(x)", "y = MatMul(x, x)", "y = Concat <axis = 0>(x, x)",
        "y = Trilu(x)", "y = Dropout(x)", "y = Shape(x)", "y = Unheard(x)"})
    EXPECT_FALSE(isElementwise(*lastNode(17, "float[4, 4] x", node))) << node;
}

TEST(ElementwiseTest, EarlierVersionsAndFurtherOperandsAreNotKnown) {
  EXPECT_EQ(elementFunction(*lastNode(19, "float[4] x", "y = Gelu(x)")), std::nullopt);
  EXPECT_EQ(elementFunction(*lastNode(20, "float[4] x", "y = Gelu(x)")), Function::Nonlinear);
  const char* inputs = "float[4] x, float[4] b, float[4] m";
  EXPECT_TRUE(isElementwise(*lastNode(17, inputs, "y = com.microsoft.FastGelu(x, b)")));
  EXPECT_FALSE(isElementwise(*lastNode(17, inputs, "y = com.microsoft.FastGelu(x, b, m)")));
}

} // namespace
} // namespace kvopt
