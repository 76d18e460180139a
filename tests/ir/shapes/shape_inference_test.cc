// Broadcasting, contents of shape tensors, the exporters' chains, and what must stay unknown.
#include "tests/ir/shapes/shape_graph.h"

namespace kvopt {
using namespace ir;

namespace {

using ShapeInferenceTest = ShapeGraphTest;

TEST_F(ShapeInferenceTest, Broadcasting) {
  struct Case {
    const char *a, *b, *result;
  };
  for (const Case& c :
       {Case{"1", "s", "s"}, Case{"s", "s", "s"}, Case{"s", "4", "4"}, Case{"?", "4", "4"},
        Case{"s", "t", "?"}, Case{"?", "?", "?"}, Case{"?", "1", "?"}, Case{"0", "1", "0"},
        Case{"s + 2", "t", "s + 2"}, Case{"3", "4", "none"}, Case{"s + 5", "4", "none"}}) {
    Value &a = input({c.a}), &b = input({c.b});
    const bool isError = llvm::StringRef(c.result) == "none";
    const std::string wanted =
        isError ? "" : TensorType(ElementType::Float, dims({c.result})).str();
    for (Value* sum : {&apply("Add", {&a, &b}), &apply("Add", {&b, &a})}) {
      const std::string found = inferred(*sum);
      EXPECT_EQ(isError ? found.substr(0, 6) : found, isError ? "error:" : wanted)
          << c.a << " with " << c.b;
    }
  }
}

TEST_F(ShapeInferenceTest, TorchScriptBroadcastOfKeys) {
  Value& key = input({"B", "2", "P + S", "16"});
  Value& unsqueezed = apply("Unsqueeze", {&key, &ints({2})});
  Value& shape = apply("Shape", {&key});
  Value& batch = apply("Unsqueeze", {&apply("Gather", {&shape, &scalar(0)}), &ints({0})});
  Value& tokens = apply("Unsqueeze", {&apply("Gather", {&shape, &scalar(2)}), &ints({0})});
  Node& join = node("Concat", {&batch, &ints({2}), &ints({4}), &tokens, &ints({16})});
  join.setAttribute("axis", Attribute::ofInt(0));
  Node& ones = node("ConstantOfShape", {&apply("Shape", {&join.result()})});
  ones.setAttribute("value", Attribute::ofTensor(int64Tensor({1})));
  Value& minus = apply("Mul", {&ones.result(), &scalar(-1)});
  Value& equal = apply("Equal", {&join.result(), &minus});
  Value& target = apply("Where", {&equal, &ones.result(), &join.result()});
  Value& expanded = apply("Expand", {&unsqueezed, &target});
  Value& reshaped = apply("Reshape", {&expanded, &ints({0, 8, -1, 16})});
  EXPECT_EQ(inferred(expanded),
            TensorType(ElementType::Float, dims({"B", "2", "4", "P + S", "16"})).str());
  EXPECT_EQ(reshaped.type(), TensorType(ElementType::Float, dims({"B", "8", "P + S", "16"})))
      << reshaped.type().str();
}

TEST_F(ShapeInferenceTest, DynamoReshapeWithAllowzero) {
  Value& key = input({"B", "2", "4", "P + S", "16"});
  Value& original = input({"B", "S", "P"});
  Node& batch = node("Shape", {&original});
  batch.setAttribute("start", Attribute::ofInt(0));
  batch.setAttribute("end", Attribute::ofInt(1));
  Node& s = node("Shape", {&original});
  s.setAttribute("start", Attribute::ofInt(1));
  s.setAttribute("end", Attribute::ofInt(2));
  Node& p = node("Shape", {&original});
  p.setAttribute("start", Attribute::ofInt(2));
  Value& total = apply("Add", {&p.result(), &s.result()});
  Node& join = node("Concat", {&batch.result(), &ints({8}), &total, &ints({16})});
  join.setAttribute("axis", Attribute::ofInt(0));
  Node& reshape = node("Reshape", {&key, &join.result()});
  reshape.setAttribute("allowzero", Attribute::ofInt(1));
  EXPECT_EQ(inferred(reshape.result()),
            TensorType(ElementType::Float, dims({"B", "8", "P + S", "16"})).str());
}

TEST_F(ShapeInferenceTest, RangeLengths) {
  Value& shape = apply("Shape", {&input({"P", "S"})});
  Value& p = apply("Gather", {&shape, &scalar(0)});
  Value& s = apply("Gather", {&shape, &scalar(1)});
  Value& one = scalar(1);
  Value& fromPast = apply("Range", {&p, &apply("Add", {&p, &s}), &one});
  Value& open = apply("Range", {&p, &s, &one});
  EXPECT_EQ(inferred(fromPast), "int64[S]");
  EXPECT_EQ(open.type().str(), "int64[?]");
}

TEST_F(ShapeInferenceTest, WhatCannotBeProvedStaysUnknown) {
  Value& x = input({"S", "8"});
  Value& s = apply("Gather", {&apply("Shape", {&x}), &scalar(0)});
  Value& half = apply("Div", {&s, &scalar(2)});
  Value& sameAsFour = apply("Equal", {&s, &scalar(4)});
  Value& ratio = apply("Div", {&s, &s});
  Value& nonZero = apply("NonZero", {&x});
  Value& tail = apply("Slice", {&x, &ints({-3}), &ints({INT64_MAX}), &ints({0})});
  EXPECT_EQ(inferred(nonZero), "int64[2, nonzero[1]]"); // a name, which equals nothing else
  EXPECT_EQ(elements(half), "none");
  EXPECT_EQ(elements(sameAsFour), "none");
  EXPECT_EQ(elements(ratio), "none");
  EXPECT_EQ(tail.type().str(), "float[?, 8]");
}

TEST_F(ShapeInferenceTest, ErrorsNameTheNode) {
  Node& product = node("MatMul", {&input({"B", "4"}), &input({"5", "2"})});
  product.setName("projection");
  llvm::Error error = inferShapes(graph);
  ASSERT_TRUE(static_cast<bool>(error));
  EXPECT_EQ(takeDiagnostic(std::move(error)).node, "projection");
}

TEST_F(ShapeInferenceTest, DeclaredTypesOfUnknownOperatorsStay) {
  Value& result = apply("example::Mystery", {&input({"S"})});
  result.setType(TensorType(ElementType::Float, dims({"S", "3"})));
  EXPECT_EQ(inferred(result), "float[S, 3]");
}

} // namespace
} // namespace kvopt
