// Shape rules of casts, copies, constants, Shape, Range.
#include "ir/verify/verifier.h"
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
using namespace ir;

namespace {

TEST(ConversionShapes, Casts) {
  expectShapes({
      {13, "float[B, S] x", "", "s = Shape(x) y = Cast <to = 6>(s)", "int32[2] {B, S}"},
      {13, "float[B, S] x", "", "s = Shape(x) y = Cast <to = 2>(s)", "uint8[2]"},
      {13, "float[B, S] x", "", "s = Shape(x) y = Cast <to = 1>(s)", "float[2]"},
      {13, "", "int64[3] c = {300, -1, 7}", "y = Cast <to = 2>(c)", "uint8[3] {44, 255, 7}"},
      {13, "float[\"B + 1\", S] x", "", "s = Shape(x) y = Cast <to = 9>(s)", "bool[2] {1, ?}"},
      {13, "float[B] x", "", "y = Cast <to = 5000000000>(x)", "undefined"},
      {15, "float[B] x, float16 t", "", "y = CastLike(x, t)", "float16[B]"},
      {13, "", "float[4] c = {2, -1.5, 0.5, 3e9}", "y = Cast <to = 7>(c)",
       "int64[4] {2, -1, 0, 3000000000}"},
      {13, "", "float[3] c = {255, 256, -1}", "y = Cast <to = 2>(c)", "uint8[3] {255, 0, 255}"},
      {13, "", "float[2] c = {0, 0.5}", "y = Cast <to = 9>(c)", "bool[2] {0, 1}"},
      {15, "int64[N] t", "", "c = Constant <value = float {3}>() y = CastLike(c, t)",
       "int64[] {3}"},
      {13, "", "float[2, 1] c = {1, 2}", "y = Cast <to = 7>(c)", "int64[2, 1]"},
  });
}

TEST(ConversionShapes, Constants) {
  expectShapes({
      {13, "", "", "y = Constant <value = int64[2] {3, 4}>()", "int64[2] {3, 4}"},
      {13, "", "", "y = Constant <value_int = 5>()", "int64[] {5}"},
      {13, "", "", "y = Constant <value_ints = [5, 6]>()", "int64[2] {5, 6}"},
      {13, "", "", "y = Constant <value_floats = [5.0, 6.0]>()", "float[2]"},
      {13, "", "", "y = Constant <value_strings = [\"a\"]>()", "string[1]"},
      {9, "", "int64[2] s = {2, 1}", "y = ConstantOfShape <value = int64[1] {7}>(s)",
       "int64[2, 1]"},
      {9, "", "int64[1] s = {3}", "y = ConstantOfShape <value = int64[1] {7}>(s)",
       "int64[3] {7, 7, 7}"},
      {9, "float[B, S] x", "", "s = Shape(x) y = ConstantOfShape(s)", "float[B, S]"},
      {9, "int64[2] s", "", "y = ConstantOfShape(s)", "float[?, ?]"},
      {9, "int64[N] s", "", "y = ConstantOfShape(s)", "float"},
      {9, "", "int64[1] s = {-3}", "y = ConstantOfShape(s)", "error: extent -3 is negative"},
      {9, "int64[2, 2] s", "", "y = ConstantOfShape(s)",
       "error: operand 0 is int64[2, 2], its rank should be 1"},
  });
}

TEST(ConversionShapes, ShapesAndSizes) {
  expectShapes({
      {13, "float[B, ?, 4] x", "", "y = Shape(x)", "int64[3] {B, ?, 4}"},
      {15, "float[B, S, 4] x", "", "y = Shape <start = -2>(x)", "int64[2] {S, 4}"},
      {15, "float[B, S, 4] x", "", "y = Shape <start = 1, end = -1>(x)", "int64[1] {S}"},
      {15, "float[B, S, 4] x", "", "y = Shape <start = 2, end = 1>(x)", "int64[0] {}"},
      {13, "float[] x", "", "y = Shape(x)", "int64[?]"},
      {13, "float[B, 4] x", "", "y = Size(x)", "int64[] {4*B}"},
      {13, "float[B, ?] x", "", "y = Size(x)", "int64[]"},
  });
}

TEST(ConversionShapes, Ranges) {
  expectShapes({
      {11, "", "int64 a = {2}, int64 b = {9}, int64 d = {3}", "y = Range(a, b, d)",
       "int64[3] {2, 5, 8}"},
      {11, "", "int64 a = {9}, int64 b = {2}, int64 d = {-3}", "y = Range(a, b, d)",
       "int64[3] {9, 6, 3}"},
      {11, "", "int64 a = {2}, int64 b = {2}, int64 d = {1}", "y = Range(a, b, d)", "int64[0] {}"},
      {11, "", "int64 a = {2}, int64 b = {9}, int64 d = {0}", "y = Range(a, b, d)",
       "error: delta is 0"},
      {11, "float[B] x", "int64 a = {0}, int64 d = {1}", "b = Size(x) y = Range(a, b, d)",
       "int64[B]"},
      {11, "float[B] x", "int64 a = {0}, int64 d = {2}", "b = Size(x) y = Range(a, b, d)",
       "int64[?]"},
      {11, "float[B] x", "int64 a = {3}, int64 d = {1}", "b = Size(x) y = Range(a, b, d)",
       "int64[?]"},
      {11, "float a, float b, float d", "", "y = Range(a, b, d)", "float[?]"},
  });
}

TEST(ConversionShapes, MasksOfDropout) {
  expectShapes({
      {7, "float[B] x", "", "y, m = Dropout(x)", "float[B]; float[B]"},
      {10, "float[B] x", "", "y, m = Dropout(x)", "float[B]; bool[B]"},
      {13, "float16[B] x", "", "y, m = Dropout(x)", "float16[B]; bool[B]"},
  });
}

TEST(ConversionShapes, ConstantsMayBeSparseFromOpset11) {
  for (int64_t opset : {9, 11, 13}) {
    GraphContext context(textRegistry());
    OpsetImports opsets{{"", opset}};
    Graph graph(context, opsets);
    Node& node = graph.create("Constant", {}, {"c"});
    node.setAttribute("sparse_value", Attribute::opaque(AttributeKind::SparseTensor, nullptr));
    EXPECT_FALSE(inferNode(node));
    EXPECT_EQ(node.result().constant(), nullptr);
    llvm::Error error = verify(graph);
    EXPECT_EQ(!error, opset >= 11) << opset;
    llvm::consumeError(std::move(error));
  }
}

} // namespace
} // namespace kvopt
