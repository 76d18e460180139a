// Tables of single operators in the textual syntax, and what shape inference says of them.
#pragma once

#include "ir/shapes/shape_inference.h"
#include "support/format.h"
#include "tests/ir/text/text_fixture.h"

namespace kvopt {

/// "float[B, 4] x" as `inputs`, "int64[1] axes = {0}" as `constants`, nodes as `nodes`.
struct ShapeCase {
  int opset;
  const char* inputs;
  const char* constants;
  const char* nodes;
  /// The last node's results as "float[B, 4]; int64[2] {B, 4}", the latter with known elements; or
  /// "error: message".
  const char* expected;
};

inline std::string inferredText(const ShapeCase& shape) {
  auto model = readOrFail(formatted(
      "<ir_version: 8, opset_import: [\"\" : {}, \"com.microsoft\" : 1, \"ai.kvopt\" : 1]> "
      "g ({}) => () <{}> {{ {} }}",
      shape.opset, shape.inputs, shape.constants, shape.nodes));
  if (!model)
    return "unreadable";
  if (llvm::Error error = ir::inferShapes(model->graph()))
    return "error: " + takeDiagnostic(std::move(error)).message;
  std::string text;
  for (const ir::Value& result : model->graph().nodes().back().results()) {
    text += (text.empty() ? "" : "; ") + result.type().str();
    auto known = result.knownIntegers();
    if (!known)
      continue;
    text += " {";
    for (size_t i = 0; i < known->size(); ++i)
      text += (i == 0 ? "" : ", ") + (*known)[i].str();
    text += '}';
  }
  return text;
}

inline void expectShapes(llvm::ArrayRef<ShapeCase> table) {
  for (const ShapeCase& shape : table)
    EXPECT_EQ(inferredText(shape), shape.expected)
        << shape.nodes << " of (" << shape.inputs << ") at opset " << shape.opset;
}

} // namespace kvopt
