// A graph with every operator definition, for tests of shape rules.
#pragma once

#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

namespace kvopt {

class ShapeGraphTest : public testing::Test {
protected:
  ShapeGraphTest() { registerAll(ops); }

  /// "batch, past + 1, ?" as extents.
  static Shape dims(llvm::ArrayRef<const char*> texts) {
    Shape shape;
    for (const char* text : texts)
      shape.push_back(Dim::parse(text).value());
    return shape;
  }
  Value& input(llvm::ArrayRef<const char*> shape, ElementType element = ElementType::Float) {
    return graph.addInput(graph.freshName("in"), TensorType(element, dims(shape)));
  }
  Value& ints(llvm::ArrayRef<int64_t> values) {
    return graph.addConstant("ints", int64Tensor(values));
  }
  Value& scalar(int64_t value) { return graph.addConstant("scalar", int64Scalar(value)); }
  Node& node(OpName op, llvm::ArrayRef<Value*> operands, unsigned results = 1) {
    return graph.createFresh(op, operands, results);
  }
  Value& apply(OpName op, llvm::ArrayRef<Value*> operands) { return node(op, operands).result(); }
  /// The type of a result after inference, or the error.
  std::string inferred(Value& value) {
    if (llvm::Error error = inferShapes(graph))
      return "error: " + takeDiagnostic(std::move(error)).message;
    return value.type().str();
  }
  std::string elements(const Value& value) {
    auto known = value.knownIntegers();
    if (!known)
      return "none";
    std::string text;
    for (const Dim& element : *known)
      text += (text.empty() ? "" : ", ") + element.str();
    return text;
  }

  OpRegistry ops;
  GraphContext context{ops};
  OpsetImports opsets{{"", 18}, {"ai.kvopt", 1}, {"com.microsoft", 1}};
  Graph graph{context, opsets};
};

} // namespace kvopt
