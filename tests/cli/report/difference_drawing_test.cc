// The limits of a picture; its names are in tests/cli/hostile_text_test.cc.
#include "cli/report/difference_drawing.h"

#include "ir/model.h"
#include "ir/text/reader.h"
#include "tests/cli/report/xml_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace cli;
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;
using namespace targets;

namespace {

using testing::HasSubstr;
using testing::Not;

size_t countOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

/// The picture of a block that went, of all nodes of a graph.
std::string drawing(const std::string& inputs, const std::string& nodes) {
  OpRegistry ops;
  registerAll(ops);
  const std::unique_ptr<Model> model =
      llvm::cantFail(readText("<ir_version: 8, opset_import: [\"\" : 17]> g (" + inputs +
                                  ") => (float[1] y) {" + nodes + "}",
                              ops));
  AttentionSubgraph block;
  for (const Node& node : model->graph().nodes())
    block.nodes.push_back(&node);
  std::string svg = llvm::cantFail(
      differenceDrawing("before.onnx", "after.onnx", {Change::Removed, &block, nullptr}));
  EXPECT_EQ(XmlCheck(svg).problem(), "");
  return svg;
}

TEST(DifferenceDrawing, EdgesAreLimited) {
  std::string inputs, operands;
  for (int i = 0; i < 500; ++i) {
    inputs += (i == 0 ? "float[1] i" : ", float[1] i") + std::to_string(i);
    operands += (i == 0 ? "i" : ", i") + std::to_string(i);
  }
  const std::string svg = drawing(inputs, "y = Sum(" + operands + ")");
  EXPECT_EQ(countOf(svg, "<path class=\"edge\""), 400u);
  EXPECT_EQ(countOf(svg, "\"box value\""), 400u);
  EXPECT_THAT(svg, HasSubstr("1 node, 400 edges<"));
}

TEST(DifferenceDrawing, NodesAreLimited) {
  std::string nodes = "x0 = Neg(x)\n";
  for (int i = 1; i < 210; ++i)
    nodes += "x" + std::to_string(i) + " = Neg(x" + std::to_string(i - 1) + ")\n";
  const std::string svg = drawing("float[1] x", nodes + "y = Neg(x209)");
  // One is in the legend.
  EXPECT_EQ(countOf(svg, "\"box removed\""), 200u + 1);
  EXPECT_THAT(svg, HasSubstr("211 nodes, the first 200<"));
}

TEST(DifferenceDrawing, IsTheSameEveryTime) {
  const std::string nodes = "a = Neg(x)\nb = Exp(x)\nc = Add(a, b)\nd = Add(c, x)\ny = Mul(d, a)";
  const std::string svg = drawing("float[1] x", nodes);
  EXPECT_EQ(countOf(svg, "<path class=\"edge\""), 9u);
  EXPECT_THAT(svg, Not(HasSubstr("edges<")));
  EXPECT_EQ(svg, drawing("float[1] x", nodes));
}

} // namespace
} // namespace kvopt
