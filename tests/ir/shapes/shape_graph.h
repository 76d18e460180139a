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
  static ir::Shape dims(llvm::ArrayRef<const char*> texts) {
    ir::Shape shape;
    for (const char* text : texts)
      shape.push_back(ir::Dim::parse(text).value());
    return shape;
  }
  ir::Value& input(llvm::ArrayRef<const char*> shape,
                   ir::ElementType element = ir::ElementType::Float) {
    return graph.addInput(graph.freshName("in"), ir::TensorType(element, dims(shape)));
  }
  ir::Value& ints(llvm::ArrayRef<int64_t> values) {
    return graph.addConstant("ints", ir::int64Tensor(values));
  }
  ir::Value& scalar(int64_t value) { return graph.addConstant("scalar", ir::int64Scalar(value)); }
  ir::Node& node(ir::OpName op, llvm::ArrayRef<ir::Value*> operands, unsigned results = 1) {
    return graph.createFresh(op, operands, results);
  }
  ir::Value& apply(ir::OpName op, llvm::ArrayRef<ir::Value*> operands) {
    return node(op, operands).result();
  }
  /// The type of a result after inference, or the error. A node with an error leaves the graph:
  /// whatever is inferred behind it would have the same.
  std::string inferred(ir::Value& value) {
    if (llvm::Error error = ir::inferShapes(graph)) {
      if (!value.hasUses())
        graph.erase(*value.producer());
      return "error: " + takeDiagnostic(std::move(error)).message;
    }
    return value.type().str();
  }
  std::string elements(const ir::Value& value) {
    auto known = value.knownIntegers();
    if (!known)
      return "none";
    std::string text;
    for (const ir::Dim& element : *known)
      text += (text.empty() ? "" : ", ") + element.str();
    return text;
  }

  ir::OpRegistry ops;
  ir::GraphContext context{ops};
  ir::OpsetImports opsets{{"", 18}, {"ai.kvopt", 1}, {"com.microsoft", 1}};
  ir::Graph graph{context, opsets};
};

} // namespace kvopt
