// Shape operands from extents: what is constant, what is read, what cannot be had.
#include "passes/pattern/shape_builder.h"

#include "ir/shapes/shape_inference.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

class ShapeBuilderTest : public testing::Test {
protected:
  ShapeBuilderTest() { registerAll(ops); }

  static Shape dims(llvm::ArrayRef<const char*> texts) {
    Shape shape;
    for (const char* text : texts)
      shape.push_back(Dim::parse(text).value());
    return shape;
  }
  Value& input(llvm::ArrayRef<const char*> shape) {
    return graph.addInput(graph.freshName("in"), TensorType(ElementType::Float, dims(shape)));
  }
  std::string known(const Value* value) {
    if (!value)
      return "null";
    auto elements = value->knownIntegers();
    std::string text;
    for (const Dim& element : *elements)
      text += (text.empty() ? "" : ", ") + element.str();
    return text;
  }

  OpRegistry ops;
  GraphContext context{ops};
  OpsetImports opsets{{"", 17}};
  Graph graph{context, opsets};
  Journal journal;
};

TEST_F(ShapeBuilderTest, VectorsHoldTheExtents) {
  input({"B", "P + S"});
  input({"B", "4", "P", "16"});
  Rewriter rewriter(graph, "test", journal);
  ShapeBuilder shapes(rewriter);
  EXPECT_EQ(known(shapes.vector({})), "");
  EXPECT_EQ(known(shapes.vector(dims({"2", "3"}))), "2, 3");
  EXPECT_EQ(known(shapes.vector(dims({"B", "1", "P + S", "16"}))), "B, 1, P + S, 16");
  EXPECT_EQ(known(shapes.vector(dims({"4*B*P + B - 1"}))), "4*B*P + B - 1");
  EXPECT_EQ(shapes.vector(dims({"N"})), nullptr);
  EXPECT_EQ(shapes.vector({Dim::unknown()}), nullptr);
  rewriter.discard();
  EXPECT_TRUE(graph.nodes().empty());
}

TEST_F(ShapeBuilderTest, OldOpsetsPickFromTheWholeShape) {
  opsets[""] = 13;
  input({"B", "S"});
  Rewriter rewriter(graph, "test", journal);
  ShapeBuilder shapes(rewriter);
  EXPECT_EQ(known(shapes.vector(dims({"S", "B"}))), "S, B");
  for (const Node& node : graph.nodes())
    EXPECT_EQ(node.attribute("start"), nullptr);
}

TEST_F(ShapeBuilderTest, ReshapesSayNoMoreThanTheyMust) {
  Value& x = input({"4*B", "S", "16"});
  input({"B", "S"});
  Rewriter rewriter(graph, "test", journal);
  ShapeBuilder shapes(rewriter);
  EXPECT_EQ(shapes.reshape(x, dims({"4*B", "S", "16"})), &x);
  Value* unsqueezed = shapes.reshape(x, dims({"4*B", "1", "S", "16"}));
  EXPECT_TRUE(unsqueezed->producer()->is("Unsqueeze"));
  EXPECT_EQ(unsqueezed->type().str(), "float[4*B, 1, S, 16]");
  EXPECT_TRUE(shapes.reshape(*unsqueezed, dims({"4*B", "S", "16"}))->producer()->is("Squeeze"));
  // S stands where it stood, and the rest is what is left.
  Value* inferred = shapes.reshape(x, dims({"4*B", "S", "4", "4"}));
  EXPECT_EQ(known(inferred->producer()->operand(1)), "0, 0, 4, 4");
  Value* open = shapes.reshape(x, dims({"4*B*S", "16"}));
  EXPECT_EQ(known(open->producer()->operand(1)), "-1, 16");
  // S may be 0: B cannot be inferred beside it, and 0 has to mean 0.
  Value* heads = shapes.reshape(x, dims({"B", "4", "S", "16"}));
  EXPECT_EQ(known(heads->producer()->operand(1)), "B, 4, S, 16");
  EXPECT_EQ(heads->producer()->intAttr("allowzero", 0), 1);
  EXPECT_EQ(heads->type().str(), "float[B, 4, S, 16]");
}

TEST_F(ShapeBuilderTest, OneShapeNodeServesSeveralVectors) {
  input({"B", "S"});
  Rewriter rewriter(graph, "test", journal);
  ShapeBuilder(rewriter).vector(dims({"B", "2"}));
  ShapeBuilder(rewriter).vector(dims({"B", "3"}));
  unsigned count = 0;
  for (const Node& node : graph.nodes())
    count += node.is("Shape") ? 1 : 0;
  EXPECT_EQ(count, 1u);
}

TEST_F(ShapeBuilderTest, BranchesReadTheInputsAround) {
  input({"B", "S"});
  Value& condition = graph.addInput("condition", TensorType(ElementType::Bool, Shape{}));
  Node& holder = graph.create("If", {&condition}, {llvm::StringRef("result")});
  Graph branch(context, opsets, &holder);
  Rewriter rewriter(branch, "test", journal);
  EXPECT_EQ(known(ShapeBuilder(rewriter).vector(dims({"S", "2"}))), "S, 2");
  EXPECT_EQ(branch.nodes().size(), 2u);
  rewriter.discard();
}

} // namespace
} // namespace kvopt
