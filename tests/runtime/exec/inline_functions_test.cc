// Calls of model functions: attributes, nesting, and bodies that cannot be inlined.
#include "runtime/exec/inline_functions.h"

#include "tests/ir/text/text_fixture.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

std::string modelText(const std::string& node, const std::string& functions) {
  return "<ir_version: 8, opset_import: [\"\" : 17, \"f\" : 1]>\n"
         "g (float[2] x) => (float[N] y) {\n  " +
         node + "\n}\n" + functions;
}

std::string function(const std::string& header, const std::string& body, int opset = 17) {
  return "<domain: \"f\", opset_import: [\"\" : " + std::to_string(opset) + ", \"f\" : 1]>\n" +
         header + " {\n  " + body + "\n}\n";
}

/// The inlined graph's operators, or the error.
std::string inlined(const std::string& text) {
  auto model = readOrFail(text);
  if (!model)
    return "unreadable";
  KernelRegistry kernels;
  registerAll(kernels);
  auto graph = inlineFunctions(*model, kernels);
  if (!graph)
    return takeDiagnostic(graph.takeError()).str();
  if (!*graph)
    return "not needed";
  std::string result;
  for (const Node& node : (*graph)->graph().nodes()) {
    result += node.op().str();
    if (const Attribute* axis = node.attribute("axis"))
      result += std::to_string(axis->intValue());
    result += " ";
  }
  return result;
}

TEST(InlineFunctionsTest, AttributesReachNestedCalls) {
  std::string outer = function("Outer <along> (a) => (b)", "b = f.Inner <axis : int = @along> (a)");
  std::string inner = function("Inner <axis> (a) => (b)", "b = Softmax <axis : int = @axis> (a)");
  EXPECT_EQ(inlined(modelText("y = f.Outer <along = 0> (x)", outer + inner)), "Softmax0 ");
}

TEST(InlineFunctionsTest, OutputsKeepNamesThatABodyUses) {
  auto model = readOrFail(
      modelText("y = f.Twice (x)", function("Twice (a) => (b)", "y = Neg (a)\n  b = Abs (y)")));
  ASSERT_TRUE(model);
  KernelRegistry kernels;
  registerAll(kernels);
  auto graph = inlineFunctions(*model, kernels);
  ASSERT_TRUE(static_cast<bool>(graph));
  const Value& output = *(*graph)->graph().outputs().front();
  EXPECT_EQ(output.name(), "y");
  EXPECT_EQ(output.producer()->op().str(), "Abs");
}

TEST(InlineFunctionsTest, RecursionAndVersionsAreErrors) {
  EXPECT_NE(inlined(modelText("y = f.Loop (x)", function("Loop (a) => (b)", "b = f.Loop (a)")))
                .find("nested more than"),
            std::string::npos);
  EXPECT_NE(inlined(modelText("y = f.Old (x)", function("Old (a) => (b)", "b = Softmax (a)", 11)))
                .find("opset 11"),
            std::string::npos);
}

TEST(InlineFunctionsTest, AnAbsentOperandCannotBeAnOutput) {
  EXPECT_NE(
      inlined(modelText("y = f.Second (x)", function("Second (a, b) => (b)", "unused = Relu (a)")))
          .find("leaves out"),
      std::string::npos);
}

TEST(InlineFunctionsTest, ANodeOfABodyNeedsItsOperandsAndAttributes) {
  EXPECT_NE(inlined(modelText("y = f.Sum (x)", function("Sum (a, b) => (c)", "c = Add (a, b)")))
                .find("is missing"),
            std::string::npos)
      << inlined(modelText("y = f.Sum (x)", function("Sum (a, b) => (c)", "c = Add (a, b)")));
  EXPECT_EQ(
      inlined(modelText("y = f.Cut (x)", function("Cut (a, low) => (c)", "c = Clip (a, low)"))),
      "Clip ");
  const std::string join =
      function("Join <axis> (a) => (c)", "c = Concat <axis : int = @axis> (a)");
  EXPECT_NE(inlined(modelText("y = f.Join (x)", join)).find("attribute 'axis' is missing"),
            std::string::npos);
  EXPECT_NE(inlined(modelText("y = f.Join <axis = \"one\"> (x)", join)).find("is of kind"),
            std::string::npos);
}

} // namespace
} // namespace kvopt
